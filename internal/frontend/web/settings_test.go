package web

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
)

// The page of settings shows the workers, whose names are no markup, or why there are none.
func TestWorkers(t *testing.T) {
	s, at := page(t)
	var missing error
	s.Workers = func(context.Context) ([]fleetwire.Worker, error) {
		return []fleetwire.Worker{{Name: "<b>far", Capacity: 2, Labels: []string{"gpu"},
			Tasks: []fleetwire.Doing{{Task: "b1", Name: "tests"}, {Task: "b2"}}}}, missing
	}
	show := func() string {
		code, text, _ := asks(t, "GET", at+"/settings", "", map[string]string{"Authorization": "Bearer " + token})
		if code != 200 {
			t.Fatalf("the page answers %d", code)
		}
		return text
	}
	text := show()
	for _, want := range []string{"&lt;b&gt;far", "full", "2 of 2", "b1 tests", "gpu"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	missing = errors.New("there is no hub")
	if text := show(); !strings.Contains(text, "there is no hub") || strings.Contains(text, "far") {
		t.Error("without a hub the page does not say so")
	}
}
