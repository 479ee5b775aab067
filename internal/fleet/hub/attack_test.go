package hub_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/hub"
	"github.com/drover-dev/drover/internal/fleet/link"
)

// A worker with its credentials and a client of its own reads no part of which it has no digest, and removes and
// replaces nothing.
func TestWorkerAttacks(t *testing.T) {
	h, _ := open(t, "127.0.0.1:0")
	s, err := connect(t, join(t, h, "main", link.RoleSession), link.RoleSession, "s", nil)
	if err != nil {
		t.Fatal(err)
	}
	line := join(t, h, "main", link.RoleWorker)
	w, err := connect(t, line, link.RoleWorker, "one", key(t))
	if err != nil {
		t.Fatal(err)
	}
	const secret = "a part of another worker"
	sum := sha256.Sum256([]byte(secret))
	digest := hex.EncodeToString(sum[:])
	if err := s.Parts().Put(t.Context(), digest, []byte(secret)); err != nil {
		t.Fatal(err)
	}
	kv, err := s.JS.KeyValue(t.Context(), fleetwire.Workers)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		if _, err := kv.Put(t.Context(), name, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := w.Parts().Get(t.Context(), digest); err != nil || string(got) != secret {
		t.Fatalf("a granted part: %q %v", got, err)
	}

	asks := func(subject, body string, header nats.Header) string {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		m := nats.NewMsg(subject)
		m.Data, m.Header = []byte(body), header
		got, err := w.Conn.RequestMsgWithContext(ctx, m)
		if err != nil {
			return ""
		}
		return fmt.Sprint(got.Header, string(got.Data))
	}
	const parts, workers = "KV_" + fleetwire.Parts, "KV_" + fleetwire.Workers
	rollup := func(what string) nats.Header { return nats.Header{"Nats-Rollup": {what}} }
	for _, c := range []struct {
		subject, body string
		header        nats.Header
	}{
		{"$JS.API.DIRECT.GET." + parts + ".$KV." + fleetwire.Parts + ".>", "", nil},
		{"$JS.API.DIRECT.GET." + parts + ".$KV." + fleetwire.Parts + ".*", "", nil},
		{"$JS.API.DIRECT.GET." + parts + ".>", "", nil},
		{"$JS.API.DIRECT.GET." + parts + "." + fleetwire.PartAt(digest), "", nil},
		{"$JS.API.DIRECT.GET." + parts, `{"seq":1}`, nil},
		{"$JS.API.DIRECT.GET." + parts, `{"last_by_subj":"$KV.>"}`, nil},
		{"$JS.API.DIRECT.GET." + parts, `{"batch":10,"next_by_subj":">"}`, nil},
		{"$JS.API.STREAM.MSG.GET." + parts, `{"seq":1}`, nil},
		{"$JS.API.STREAM.INFO." + parts, `{"subjects_filter":">"}`, nil},
		{"$JS.API.STREAM.SNAPSHOT." + parts, `{"deliver_subject":"_INBOX_worker_one.x"}`, nil},
		{"$JS.API.CONSUMER.CREATE." + parts + ".x", `{"stream_name":"` + parts + `","config":{"ack_policy":"none"}}`, nil},
		{"$JS.API.STREAM.CREATE.COPY", `{"name":"COPY","mirror":{"name":"` + parts + `"}}`, nil},
		{fleetwire.PartOf(fleetwire.GetPart, "one"), "*", nil},
		{fleetwire.PartOf(fleetwire.GetPart, "one"), ">", nil},
		{fleetwire.PartOf(fleetwire.GetPart, "one"), "", nil},
		{fleetwire.PartOf(fleetwire.GetPart, "one"), digest[:63] + "*", nil},
		{fleetwire.PartOf(fleetwire.GetPart, "one"), digest[:62], nil},
		{fleetwire.PartOf(fleetwire.GetPart, "two"), digest, nil},
		{fleetwire.PartOf("*", "one"), digest, nil},
		{"$KV." + fleetwire.Parts + "." + digest, "replaced", nil},
		{"$KV." + fleetwire.Parts + "." + digest, "", rollup("all")},
		{"$KV." + fleetwire.Parts + "." + digest, "", nats.Header{"KV-Operation": {"PURGE"}}},
		{"$KV." + fleetwire.Workers + ".two", "replaced", nil},
		{"$KV." + fleetwire.Workers + ".one", "{}", rollup("all")},
		{"$KV." + fleetwire.Workers + ".one", "{}", rollup("sub")},
		{"$JS.API.STREAM.PURGE." + parts, "", nil},
		{"$JS.API.STREAM.PURGE." + workers, "", nil},
		{"$JS.API.STREAM.DELETE." + workers, "", nil},
		{"$JS.API.STREAM.MSG.DELETE." + workers, `{"seq":1}`, nil},
		{"$JS.API.STREAM.UPDATE." + workers, `{"name":"` + workers + `","allow_rollup_hdrs":true}`, nil},
	} {
		got := asks(c.subject, c.body, c.header)
		if strings.Contains(got, secret) || strings.Contains(got, digest) || strings.Contains(got, "YSBwYXJ0") {
			t.Errorf("%s %s: the worker reads %q", c.subject, c.body, got)
		}
	}
	for _, name := range []string{"one", "two"} {
		if e, err := kv.Get(t.Context(), name); err != nil || string(e.Value()) != "{}" {
			t.Errorf("what worker %s says of itself is gone or replaced: %v", name, err)
		}
	}
	if got, err := s.Parts().Get(t.Context(), digest); err != nil || string(got) != secret {
		t.Errorf("the part is gone or replaced: %q %v", got, err)
	}
	// What a worker sends has the digest of its content, whatever the worker calls it.
	if err := w.Parts().Put(t.Context(), digest, []byte("replaced")); err != nil {
		t.Error(err)
	}
	if got, err := s.Parts().Get(t.Context(), digest); err != nil || string(got) != secret {
		t.Errorf("the part is replaced: %q %v", got, err)
	}
	sum = sha256.Sum256([]byte("replaced"))
	if got, err := s.Parts().Get(t.Context(), hex.EncodeToString(sum[:])); err != nil || string(got) != "replaced" {
		t.Errorf("what the worker has sent is not found by its digest: %q %v", got, err)
	}
}

// One worker fills half of the store at most, and others still send.
func TestQuota(t *testing.T) {
	_, c := open(t, "127.0.0.1:0")
	c.Dir, c.Store = c.Dir+"2", 1<<20
	h, err := hub.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	line := join(t, h, "main", link.RoleWorker)
	put := func(name string, part byte) error {
		w, err := connect(t, line, link.RoleWorker, name, key(t))
		if err != nil {
			t.Fatal(err)
		}
		return w.Parts().Put(t.Context(), "any", append(make([]byte, 200<<10), part))
	}
	for i := range byte(2) {
		if err := put(fmt.Sprint("w", i), i); err != nil {
			t.Error(err)
		}
	}
	w, err := connect(t, line, link.RoleWorker, "greedy", key(t))
	if err != nil {
		t.Fatal(err)
	}
	refused := false
	for i := range 4 {
		if err := w.Parts().Put(t.Context(), "any", append(make([]byte, 200<<10), byte(100+i))); err != nil {
			refused = strings.Contains(err.Error(), "quota")
			break
		}
	}
	if !refused {
		t.Error("one worker has no quota")
	}
	if err := put("w3", 3); err != nil {
		t.Errorf("another worker cannot send: %v", err)
	}
}
