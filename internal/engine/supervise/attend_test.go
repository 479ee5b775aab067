package supervise

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/task"
)

// While a person sees the questions none of them has a deadline, whether it was asked before or
// meanwhile. It begins anew when the last person has left, and not between two of their requests.
func TestAttend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		defer s.Close()
		got := make(chan task.Reply, 2)
		ask := func() {
			r, err := s.Ask(t.Context(), "s00000000", task.Question{Kind: task.Permission, Tool: "Bash", Wait: time.Minute})
			if err != nil {
				t.Error(err)
			}
			got <- r
		}
		deadlines := func(want time.Duration, when string) {
			t.Helper()
			synctest.Wait()
			for _, q := range open(s) {
				if left := time.Until(q.Until); want == 0 && !q.Until.IsZero() || want > 0 && left != want {
					t.Errorf("%s: a question is denied in %v (until %v), want %v", when, left, q.Until, want)
				}
			}
		}
		go ask()
		deadlines(time.Minute, "without a person")
		time.Sleep(50 * time.Second)
		first, second := s.Attend(), s.Attend()
		go ask()
		deadlines(0, "with two people")
		first()
		for range 100 { // as a frontend that asks again and again
			time.Sleep(time.Minute)
			again := s.Attend()
			second()
			second = again
		}
		_, version := s.Questions()
		second()
		second = s.Attend()
		time.Sleep(parting * 2)
		deadlines(0, "with one")
		if _, now := s.Questions(); now != version {
			t.Error("a request that follows another changes the list")
		}
		if n := len(open(s)); n != 2 {
			t.Fatalf("%d questions are open, want 2", n)
		}
		second()
		time.Sleep(parting)
		deadlines(time.Minute, "after the last has left")
		time.Sleep(59 * time.Second)
		if n := len(open(s)); n != 2 {
			t.Errorf("%d questions are open before their time, want 2", n)
		}
		time.Sleep(2 * time.Second)
		for range 2 {
			if r := <-got; r.Allow || r.Reason != "nobody answered within 1m0s" {
				t.Errorf("the reply is %+v", r)
			}
		}
	})
}

// A deadline of a question itself, as a workflow has it, is not lifted by a person.
func TestAttendUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		defer s.Close()
		defer s.Attend()()
		r, err := s.Ask(context.WithoutCancel(t.Context()), "s00000000",
			task.Question{Kind: task.Permission, Tool: "workflow", Until: time.Now().Add(time.Minute)})
		if err != nil || !strings.HasPrefix(r.Reason, "nobody answered") {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
