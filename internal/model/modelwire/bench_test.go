package modelwire_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/waittest"
)

// ready is a model on a server that sends the same bytes each time.
func (d dialect) ready(t testing.TB, body []byte) model {
	t.Helper()
	s, err := modeltest.New(func(context.Context,
		*modeltest.Request) modeltest.Answer {
		return modeltest.Answer{Raw: body}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.Keep(0)
	m, err := d.make(config{url: s.URL, key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// long is an answer of about so many events: text, or the input of a call.
func long(events int, call bool) modeltest.Answer {
	text := strings.Repeat("x", 64*events)
	if call {
		return modeltest.Call("Write", map[string]string{"content": text})
	}
	return modeltest.Text(text)
}

// An answer costs in proportion to its length: 8 times the events may not take
// 64 times the memory.
func TestLinear(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		for _, call := range []bool{false, true} {
			cost := func(events int) uint64 {
				m := d.ready(t, long(events, call).StreamOf(d.api, "m"))
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				if _, err := m.Reply(waittest.Context(t, patience), request("hi"), nil); err != nil {
					t.Fatal(err)
				}
				runtime.ReadMemStats(&after)
				return after.TotalAlloc - before.TotalAlloc
			}
			if small, large := cost(1000), cost(8000); large > 12*small {
				t.Errorf("call %v: 1,000 events cost %d bytes, 8,000 cost %d", call, small, large)
			}
		}
	})
}

// The second turn of a long conversation translates what is new in it only.
func TestTurnCost(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		m := d.ready(t, modeltest.Text("ok").StreamOf(d.api, "m"))
		req := conversation(2000)
		cost := func() uint64 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := m.Reply(waittest.Context(t, patience), req, nil); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		cost()
		if second := cost(); second > 8<<20 { // the server holds the 2 MB of the request too
			t.Errorf("the second turn of a conversation of 2 MB took %d bytes", second)
		}
	})
}

func conversation(messages int) *agent.Request {
	req := request("begin")
	for i := range messages / 2 {
		id := fmt.Sprint("call_", i)
		req.Messages = append(req.Messages,
			agent.NewMessage(agent.Assistant, modeltest.ToolUse(id, "Bash", map[string]any{"a": strings.Repeat("w", 1000)})),
			agent.NewMessage(agent.User, agent.ToolResultBlock(id, strings.Repeat("w", 1000), false)))
	}
	return req
}

func BenchmarkStream(b *testing.B) {
	for _, d := range dialects() {
		for _, n := range []int{1000, 10_000, 100_000} {
			b.Run(fmt.Sprint(d.name, "/", n), func(b *testing.B) {
				m := d.ready(b, long(n, false).StreamOf(d.api, "m"))
				req := request("hi")
				b.ReportAllocs()
				begin := cpu(b)
				for b.Loop() {
					if _, err := m.Reply(b.Context(), req, nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/event")
				b.ReportMetric(float64(cpu(b)-begin)/float64(b.N)/float64(n), "cpu-ns/event")
			})
		}
	}
}

// cpu is the time in nanoseconds that this process had a processor for, the
// server in it included: on a busy machine the clock tells little.
func cpu(b *testing.B) int64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}

func BenchmarkTurn(b *testing.B) {
	for _, d := range dialects() {
		b.Run(d.name, func(b *testing.B) {
			m := d.ready(b, modeltest.Text("ok").StreamOf(d.api, "m"))
			req := conversation(500)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Reply(b.Context(), req, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
