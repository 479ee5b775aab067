package session

import (
	"fmt"
	system "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// Prompts that come at once have a turn each.
func TestPromptsAtOnce(t *testing.T) {
	const prompts, rounds = 40, 8
	c := converse(open(t, "\n  main:\n"+strings.Repeat("    - {text: said}\n", prompts*rounds)))
	over := make(chan struct{})
	var crowd sync.WaitGroup
	for range 3 { // who want the lock under which mail is delivered, so that it is not always had in turn
		crowd.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					c.mu.Lock()
					_ = c.main
					c.mu.Unlock()
				}
			}
		})
	}
	for range rounds {
		var asking sync.WaitGroup
		for i := range prompts {
			asking.Go(func() { c.say(fmt.Sprint("prompt ", i)) })
		}
		asking.Wait()
		if _, err := c.settle(time.Minute); err != nil {
			t.Error(err)
		}
		if n := len(c.turns); n != prompts {
			t.Errorf("%d turns for %d prompts", n, prompts)
		}
		for range len(c.turns) {
			<-c.turns
		}
	}
	close(over)
	crowd.Wait()
}

// A prompt that comes while its conversation is being stopped begins a further run,
// and is told once.
func TestPromptAtTheStop(t *testing.T) {
	r := open(t, `
  main:
    - {delay: 10m, text: late}
`)
	id := r.cfg.Info.Session
	m := r.hosted(time.Nanosecond)
	soon := func(what string, is func() bool) {
		for !is() {
			if system.Gosched(); r.ctx.Err() != nil {
				t.Fatal("the test waits in vain until ", what)
			}
		}
	}
	r.prompt("one")
	soon("it is told", func() bool { return len(m.loop.Messages()) > 0 })
	m.order.Lock() // no prompt is written down
	write := sync.OnceFunc(m.order.Unlock)
	defer write()
	asked, stopped := make(chan error, 1), make(chan error, 1)
	go func() { asked <- r.promptHosted(r.ctx, m, "two") }()
	soon("it is asked", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.posting == 1
	})
	go func() {
		_, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{string(id)}, Actor: task.ByUser})
		stopped <- err
	}()
	soon("the run takes no more", func() bool { return !m.under() })
	write()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if err := <-asked; err != nil {
		t.Errorf("the prompt was refused: %v", err)
	}
	soon("it is told", func() bool { return strings.Contains(string(r.transcript()), `"two"`) })
	if told := strings.Count(string(r.transcript()), `"two"`); told != 1 {
		t.Errorf("the prompt was told %d times", told)
	}
	if unread, err := r.log.Unread(r.ctx, id); err != nil || len(unread) > 0 {
		t.Errorf("the next host would tell %v, %v", unread, err)
	}
}

// What a turn has begun with is not given to the next host, too.
func TestPassedBy(t *testing.T) {
	m := &Main{over: true, begun: 7}
	if m.passedBy(7) || !m.passedBy(8) {
		t.Error("of the prompts 7 and 8, 7 has begun a turn")
	}
	if m.over = false; m.passedBy(8) {
		t.Error("a run is under way that takes it")
	}
}
