package tui

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
)

// The renderer's ticker stands still behind the last change, and goes on with the next.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticker := time.NewTicker(renderEvery)
		defer ticker.Stop()
		p := &pulse{find: func() *time.Ticker { return ticker }}
		ticks := func(d time.Duration) (n int) {
			for end := time.After(d); ; {
				select {
				case <-ticker.C:
					n++
				case <-end:
					return n
				}
			}
		}
		if cmd := p.beat(tick{}); cmd == nil {
			t.Fatal("nobody asks whether all is drawn")
		}
		if p.beat(tick{}) != nil {
			t.Error("it is asked twice")
		}
		for range 3 { // changed, drawn, still drawn
			if p.stopped {
				t.Error("it stopped before all was drawn for sure")
			}
			p.beat(quiet{})
		}
		if n := ticks(time.Second); n != 0 || !p.stopped {
			t.Errorf("%d ticks in a second in which nothing changes", n)
		}
		p.beat(tick{})
		if n := ticks(time.Second); n < 59 {
			t.Errorf("%d ticks in a second behind a change", n)
		}
	})
}

// The ticker is where it is looked for, in this version of bubbletea.
func TestRendererTicker(t *testing.T) {
	var p *tea.Program
	m := &seeker{found: make(chan bool, 1)}
	p = tea.NewProgram(m, tea.WithInput(nil), tea.WithOutput(io.Discard), tea.WithoutSignalHandler(), tea.WithWindowSize(80, 24))
	m.p = p
	if _, err := p.Run(); err != nil {
		t.Fatal(err)
	}
	if !<-m.found {
		t.Error("the renderer's ticker is not found: the program wakes 60 times a second for nothing")
	}
}

// seeker looks for the ticker of its program.
type seeker struct {
	p     *tea.Program
	found chan bool
}

func (s *seeker) Init() tea.Cmd { return func() tea.Msg { return tick{} } }

func (s *seeker) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if _, ok := msg.(tick); ok {
		s.found <- rendererTicker(s.p) != nil
		return s, tea.Quit
	}
	return s, nil
}

func (s *seeker) View() tea.View { return tea.NewView("") }
