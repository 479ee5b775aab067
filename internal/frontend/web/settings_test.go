package web

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// The page of settings shows the workers, whose names are no markup, or why there are none.
func TestWorkers(t *testing.T) {
	s, at := page(t)
	var missing error
	s.Workers = func(context.Context) ([]Worker, error) {
		return []Worker{{Name: "<b>far", State: "full", Capacity: 2, Labels: []string{"gpu"}, Tasks: []string{"b1 tests", "b2"}}}, missing
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
