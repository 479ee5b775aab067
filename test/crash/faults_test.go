//go:build linux

package crash

import (
	"bufio"
	"encoding/json"
	"hash/fnv"
	"net"
	"strings"
	"sync"
	"time"
)

// faults hears of every fail point that a process of one place reaches, and says
// what it is to do there. What is not waited for goes on, with a seed after a
// short delay that is the same in every run of that seed.
type faults struct {
	l     net.Listener
	seed  int64          // 0: no delays
	over  chan struct{}  // closed by letGo
	conns sync.WaitGroup // one per accepted connection, and the accepting; close waits
	seen  map[string]int // by name and role
	traps map[string]*trap

	mu sync.Mutex
}

// trap waits for one process to reach a place.
type trap struct {
	names []string // any of them
	role  string
	skip  int      // so many pass before
	hit   chan hit // capacity 1
}

// hit is a process that stands at a place until it is answered.
type hit struct {
	Name   string      `json:"name"`
	PID    int         `json:"pid"`
	Role   string      `json:"role"`
	answer chan string // capacity 1
}

// release lets the process go on, if it still lives.
func (h hit) release() {
	if h.answer != nil {
		h.answer <- "go"
	}
}

func listen(socket string, seed int64) (*faults, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	f := &faults{l: l, seed: seed, over: make(chan struct{}), seen: map[string]int{}, traps: map[string]*trap{}}
	f.conns.Go(f.accept)
	return f, nil
}

func (f *faults) accept() {
	for {
		c, err := f.l.Accept()
		if err != nil {
			return
		}
		f.conns.Go(func() { f.serve(c) })
	}
}

func (f *faults) serve(c net.Conn) {
	defer c.Close()
	var h hit
	if json.NewDecoder(bufio.NewReader(c)).Decode(&h) != nil {
		return // it was killed before it could say where it is
	}
	f.mu.Lock()
	n := f.seen[h.Name+" "+h.Role] + 1
	f.seen[h.Name+" "+h.Role] = n
	caught := f.caught(h)
	f.mu.Unlock()
	answer := "go"
	switch {
	case caught != nil:
		h.answer = make(chan string, 1)
		caught.hit <- h
		select {
		case answer = <-h.answer:
		case <-f.over:
		}
	case f.seed != 0:
		late := time.NewTimer(f.delay(h.Name, n))
		select {
		case <-late.C:
		case <-f.over:
		}
		late.Stop()
	}
	_, _ = c.Write([]byte(answer + "\n")) // it may be dead by now
}

// caught takes out the trap that a process has walked into. The caller holds mu.
func (f *faults) caught(h hit) *trap {
	for id, t := range f.traps {
		for _, name := range t.names {
			if name == h.Name && t.role == h.Role {
				if t.skip--; t.skip >= 0 {
					return nil
				}
				delete(f.traps, id)
				return t
			}
		}
	}
	return nil
}

// arm sets the trap of an ID, in place of an earlier one.
func (f *faults) arm(id, role string, skip int, names ...string) *trap {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := &trap{names: names, role: role, skip: skip, hit: make(chan hit, 1)}
	f.traps[id] = t
	return t
}

// times is how often processes of a role have come to a place.
func (f *faults) times(name, role string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[name+" "+role]
}

// reached are the names of the places that some process came to.
func (f *faults) reached() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]bool{}
	for k := range f.seen {
		name, _, _ := strings.Cut(k, " ")
		out[name] = true
	}
	return out
}

// maxDelay is long beside the steps of a task and short beside its life.
const maxDelay = 8 * time.Millisecond

// delay follows from the seed, the place and how often it was reached, and not
// from the order in which processes come.
func (f *faults) delay(name string, n int) time.Duration {
	return time.Duration(mix(f.seed, name, n) % uint64(maxDelay))
}

func mix(seed int64, name string, n int) uint64 {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode([]any{seed, name, n})
	x := h.Sum64() // its low bits are poor
	x ^= x >> 29
	return x * 0x9E3779B97F4A7C15 >> 16
}

// letGo frees whoever stands at a place; nobody is held from then on.
func (f *faults) letGo() { close(f.over) }

// close is called once, after letGo.
func (f *faults) close() {
	_ = f.l.Close()
	f.conns.Wait()
}
