package tui

import (
	"reflect"
	"time"

	tea "charm.land/bubbletea/v2"
)

// pulse lets the program sleep while nothing changes. The renderer of bubbletea looks for
// something to draw at every tick of its own ticker, 60 times a second for as long as it
// runs; it has no switch for that. A pulse stops this ticker after the last frame, and
// starts it again with the next message. Only [Model.Update] uses it.
type pulse struct {
	find    func() *time.Ticker // of the renderer; nil, or a nil ticker: it is left alone
	stopped bool
	armed   bool // a message quiet is on its way
	changed bool // there was another message since it was sent
	rest    bool // nothing had changed at the last one
}

// quiet asks whether the renderer has had time to draw all that there is.
type quiet struct{}

const (
	renderEvery = time.Second / 60
	quietAfter  = 40 * time.Millisecond // two ticks and more; twice, since a busy machine delays them
)

// rendererTicker is the ticker of a program's renderer; nil: this bubbletea has none.
func rendererTicker(p *tea.Program) *time.Ticker {
	f := reflect.ValueOf(p).Elem().FieldByName("ticker")
	if !f.IsValid() || f.Type() != reflect.TypeFor[*time.Ticker]() {
		return nil
	}
	return (*time.Ticker)(f.UnsafePointer())
}

// beat takes in a message: the renderer looks again, and rests when nothing follows.
func (p *pulse) beat(msg tea.Msg) tea.Cmd {
	if p.find == nil {
		return nil
	}
	if _, ok := msg.(quiet); !ok {
		p.changed, p.rest = true, false
		if p.stopped {
			p.stopped = false
			p.find().Reset(renderEvery)
		}
	} else {
		p.armed = false
		if !p.changed && p.rest {
			if t := p.find(); t != nil {
				t.Stop()
				p.stopped = true
			}
			return nil
		}
		p.rest, p.changed = !p.changed, false
	}
	if p.armed {
		return nil
	}
	p.armed = true
	return tea.Tick(quietAfter, func(time.Time) tea.Msg { return quiet{} })
}
