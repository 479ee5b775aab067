//go:build linux

// Package soak keeps two detached hosts at work for a long time, and looks whether
// anything grows, is left behind, or is told wrongly.
//
// One host has commands, agents, monitors and workflows of clients; the other has a
// conversation that starts the same by tools and is told how they end. Readers come and
// go. Each second memory, descriptors, threads and processes are counted; at the end each
// notification must have been told once, each event read once, and nothing may be left running.
// docs/reliability.md has the whole of it. `make soak` takes 20 minutes; `go test ./test/soak`
// less than one.
package soak

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// timeVariable says how long the load goes on, such as 20m.
const timeVariable = "SOAK"

const (
	shortTime = 20 * time.Second
	patience  = 2 * time.Minute // bounds every wait; on an idle machine none comes near it
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSoak is the soak.
func TestSoak(t *testing.T) {
	long, err := time.ParseDuration(cmp.Or(os.Getenv(timeVariable), shortTime.String()))
	if err != nil || long < 10*time.Second {
		t.Fatalf("%s=%q is no time of at least 10s", timeVariable, os.Getenv(timeVariable))
	}
	s := newSoak(t)
	s.begin()
	if long >= 4*time.Minute {
		s.fill()
	}
	s.load(long)
	s.drain()
	s.judge()
	if t.Failed() {
		s.keep()
	}
}

// soak is the whole: two hosts, what works on them, and what was seen.
type soak struct {
	*place
	model  *model
	work   *hosted // of clients
	talk   *hosted // of a conversation
	tally  tally
	events map[*hosted]*following
	took   time.Duration // of the load
	stacks int           // goroutines of the idle host at the end
}

func newSoak(t *testing.T) *soak {
	return &soak{place: newPlace(t), events: map[*hosted]*following{}, tally: tally{n: map[string]int{}}}
}

// tally counts what was done, and what went wrong.
type tally struct {
	mu    sync.Mutex
	n     map[string]int
	wrong []string
}

func (c *tally) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[what]++
}

func (c *tally) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[what]
}

// bad notes what went wrong; the first twenty are told.
func (c *tally) bad(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n["wrong"]++
	if len(c.wrong) < 20 {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

// judge prints the table and fails the test for what must not be.
func (s *soak) judge() {
	for _, text := range s.tally.wrong {
		s.Error(text)
	}
	if n := s.tally.of("wrong"); n > len(s.tally.wrong) {
		s.Errorf("%d things went wrong", n)
	}
	s.Log("\n" + s.table())
	for _, h := range []*hosted{s.work, s.talk} {
		for _, g := range h.growths() {
			if !g.fine() {
				s.Errorf("%s of the %s host grew by %s in %s, allowed are %s; the most was %s, allowed are %s", g.what, h.name,
					g.say(g.grew), g.over.Round(time.Second), g.say(g.allowed), g.say(g.most), g.say(g.ceiling))
			}
		}
	}
	for _, what := range s.kinds() {
		if s.tally.of(what) == 0 {
			s.Errorf("there were no %s", what)
		}
	}
	if limit := maxGoroutines; s.stacks == 0 || s.stacks > limit {
		s.Errorf("the idle host has %d goroutines, allowed are 1 to %d", s.stacks, limit)
	}
}

// kinds are what must have been done at least once.
func (s *soak) kinds() []string {
	return []string{"commands that ended as said", "commands stopped", "commands paused", "floods ended at the cap", "agents", "agents stopped", "monitors", "workflows",
		"turns", "background commands", "background agents", "background monitors", "background workflows", "background commands stopped",
		"compactions", "notifications told", "messages told", "events read", "outputs read", "readers that went", "faces"}
}

func (s *soak) table() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("load for %s", s.took.Round(time.Second))
	for _, what := range s.kinds() {
		line("  %-30s %8d  %7.2f/s", what, s.tally.of(what), float64(s.tally.of(what))/s.took.Seconds())
	}
	line("  %-30s %8d", "notifications that wait for an agent", s.tally.of("notices that wait for an agent"))
	for _, h := range []*hosted{s.work, s.talk} {
		for i, g := range h.growths() {
			if i == 0 {
				line("%-14s of %d ended tasks, after %s: %9s %10s %10s %10s %10s %12s", h.name, h.ended[len(h.ended)-1], s.took.Round(time.Second)-g.over.Round(time.Second),
					"first", "last", "most", "grew", "allowed", "an hour")
			}
			line("  %-41s %10s %10s %10s %10s %10s %12s", g.what, g.say(g.first), g.say(g.last), g.say(g.most), g.say(g.grew), g.say(g.allowed), g.say(g.perHour()))
		}
	}
	line("goroutines of the idle host at the end: %d", s.stacks)
	line("lost 0, doubled 0, left running 0, unless it is said above")
	return b.String()
}
