package supervise

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// taken is what the ended tasks in memory take, added up anew.
func (s *Supervisor) taken() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.past.queue {
		n += e.weigh()
	}
	return n
}

// Ended tasks leave the memory by what they take, long before there are too many of them,
// and sooner than those that are only many. They are found all the same.
func TestEvictBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		const most = 1 << 20
		s := New(Config{Session: "s00000000", Log: log, Held: 1000, HeldBytes: most, Recall: log.newest})
		defer s.Close()
		input, err := json.Marshal(strings.Repeat("x", 50_000))
		if err != nil {
			t.Fatal(err)
		}
		var all []task.ID
		for n := range 100 {
			all = append(all, start(t, s, work(instant), task.Spec{Name: fmt.Sprint("n", n), Input: input}).ID)
			synctest.Wait()
			time.Sleep(100 * time.Millisecond) // ten seconds in all, of a grace of thirty
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := s.taken(); n > most || n != s.past.bytes {
			t.Errorf("%d bytes are held, %d are counted", n, s.past.bytes)
		}
		if n := len(held(s)); n == 0 || n > most/50_000 {
			t.Errorf("%d in memory", n)
		}
		for n, id := range all {
			if r, err := s.Find(fmt.Sprint("n", n)); err != nil || r.ID != id || r.Status != task.Completed {
				t.Errorf("n%d: %+v, %v", n, r, err)
			}
		}
		if n := len(listing(t, s, 0)); n != len(all) {
			t.Errorf("%d listed", n)
		}
	})
}

// A long command is whole in the first event of its task, and nowhere else.
func TestLongCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log})
		defer s.Close()
		command := strings.Repeat("x", 100_000)
		r := start(t, s, work(instant), task.Spec{Command: command})
		synctest.Wait()
		if len(r.Command) > lifecycle.MaxRecordText || r.CommandBytes != len(command) {
			t.Errorf("the record has %d bytes of %d", len(r.Command), r.CommandBytes)
		}
		log.mu.Lock()
		defer log.mu.Unlock()
		for i, e := range log.entries {
			if whole := e.Task.Command == command && e.Task.CommandBytes == 0; whole != (i == 0) {
				t.Errorf("event %d (%s) has %d bytes of the command", i, e.Verb, len(e.Task.Command))
			}
		}
		if len(log.entries) < 3 {
			t.Errorf("%d events", len(log.entries))
		}
	})
}

// What is too long is refused before anything is recorded, at a start and at a further run.
func TestTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log})
		defer s.Close()
		if _, err := s.Start(t.Context(), work(instant), task.Spec{Description: strings.Repeat("d", task.MaxDescription+1)}); err == nil {
			t.Error("a description above the limit was taken")
		}
		if n := len(log.entries); n != 0 {
			t.Errorf("%d events", n)
		}
		r := start(t, s, work(instant), task.Spec{})
		synctest.Wait()
		if _, err := s.Resume(t.Context(), r.ID, work(instant), task.Spec{Prompt: strings.Repeat("p", task.MaxSpecPrompt+1)}); err == nil {
			t.Error("a prompt above the limit was taken")
		}
	})
}
