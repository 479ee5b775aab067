package modelwire

import (
	"net/http"
	"testing"
	"time"
)

// A reset that is far enough away makes a usage limit, in every form in which providers tell it.
func TestReset(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	head := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	for name, c := range map[string]struct {
		h    http.Header
		body string
		want time.Duration // 0: no usage limit
	}{
		"soon":        {head("retry-after", "60"), ``, 0},
		"retry-after": {head("retry-after", "7200"), ``, 2 * time.Hour},
		"as a date":   {head("retry-after", now.Add(time.Hour).UTC().Format(http.TimeFormat)), ``, time.Hour},
		"unified": {head("anthropic-ratelimit-unified-status", "rejected", "anthropic-ratelimit-unified-reset", "1800018000",
			"retry-after", "30"), ``, 5 * time.Hour},
		"unified, allowed": {head("anthropic-ratelimit-unified-status", "allowed", "anthropic-ratelimit-unified-reset",
			"1800018000", "retry-after", "30"), ``, 0},
		"none remain": {head("anthropic-ratelimit-tokens-remaining", "0", "anthropic-ratelimit-tokens-reset",
			now.Add(10*time.Minute).UTC().Format(time.RFC3339), "anthropic-ratelimit-requests-remaining", "5",
			"anthropic-ratelimit-requests-reset", now.Add(time.Hour).UTC().Format(time.RFC3339)), ``, 10 * time.Minute},
		"openai":      {head("x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "6m0s"), ``, 6 * time.Minute},
		"in the body": {nil, `{"error":{"type":"usage_limit_reached","message":"limit","resets_in_seconds":3600}}`, time.Hour},
		"at, in the body": {nil, `{"error":{"type":"usage_limit_reached","message":"limit","resets_at":1800003600}}`,
			time.Hour},
		"absurd":  {head("retry-after", "1e300"), ``, 0},
		"a month": {head("retry-after", "2592000"), ``, 0},
		"past":    {head("retry-after", now.Add(-time.Hour).UTC().Format(http.TimeFormat)), ``, 0},
		"nothing": {nil, `{"error":{"type":"rate_limit_error","message":"slow","resets_at":"soon"}}`, 0},
	} {
		r := &Refusal{}
		if c.body != "" {
			r, _ = ParseRefusal([]byte(c.body))
		}
		got := resetAt(c.h, r, now)
		if c.want == 0 != got.IsZero() || c.want != 0 && !got.Equal(now.Add(c.want)) {
			t.Errorf("%s: %v, want %v from now", name, got, c.want)
		}
	}
}
