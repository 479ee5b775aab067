package session

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
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
