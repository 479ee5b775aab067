package process_test

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/test/waittest"
)

// With a first signal the group is asked by it as a terminal would, and by TERM when
// the leader has gone or has not; who is in a hurry comes to KILL at once.
func TestFirst(t *testing.T) {
	const long = time.Minute // nobody waits for it
	ctx := context.Background()
	hurry, done := context.WithCancel(ctx)
	done()
	for name, c := range map[string]struct {
		cmd  []string
		ctx  context.Context
		wait time.Duration
		exit process.Exit
		sent []syscall.Signal
	}{
		"taken":    {sh("trap 'exit 3' INT; trap 'exit 4' TERM; echo ready; while :; do sleep 0.01; done"), ctx, long, process.Exit{Code: 3}, []syscall.Signal{syscall.SIGINT}},
		"dead":     {sh("echo ready; exec sleep 1000"), ctx, long, process.Exit{Code: -1, Signal: syscall.SIGINT}, []syscall.Signal{syscall.SIGINT}},
		"stopped":  {sh("echo ready; kill -STOP $$; exec sleep 1000"), ctx, long, process.Exit{Code: -1, Signal: syscall.SIGINT}, []syscall.Signal{syscall.SIGINT}},
		"left":     {sh("trap '' INT; sleep 1000 & trap - INT; echo ready; exec sleep 1000"), ctx, long, process.Exit{Code: -1, Signal: syscall.SIGINT}, []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}},
		"deaf":     {sh("trap '' INT; trap 'exit 4' TERM; echo ready; while :; do sleep 0.01; done"), ctx, 2 * time.Second, process.Exit{Code: 4}, []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}},
		"stubborn": {self("ignore-term"), ctx, 50 * time.Millisecond, process.Exit{Code: -1, Signal: syscall.SIGKILL}, []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}},
		"hurry":    {self("ignore-term"), hurry, long, process.Exit{Code: -1, Signal: syscall.SIGKILL}, []syscall.Signal{syscall.SIGINT, syscall.SIGKILL}},
		"at once":  {sh("echo ready; exec sleep 1000"), ctx, 0, process.Exit{Code: -1, Signal: syscall.SIGKILL}, []syscall.Signal{syscall.SIGKILL}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _ := announced(t, 1, process.Command{Args: c.cmd})
			report := g.End(c.ctx, process.Ending{Grace: c.wait, First: syscall.SIGINT})
			if exit, err := g.Wait(waittest.Context(t, time.Second)); err != nil || exit != c.exit {
				t.Errorf("ended as %+v, %v", exit, err)
			}
			if got := kinds(report); !slices.Equal(got, c.sent) || len(report.Left) > 0 {
				t.Errorf("sent %v, left %v", got, report.Left)
			}
		})
	}
}

// kinds are the signals that were sent, without those that let a process go on.
func kinds(r process.Report) (out []syscall.Signal) {
	for _, s := range r.Sent {
		if s.Signal != syscall.SIGCONT {
			out = append(out, s.Signal)
		}
	}
	return out
}

// Who ignores TERM is hung up where that is asked for; who heeds it is not.
func TestHangup(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		exit process.Exit
		sent []syscall.Signal
	}{
		"ignores": {"trap '' TERM; echo ready; exec sleep 1000", process.Exit{Code: -1, Signal: syscall.SIGHUP}, []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM}},
		"heeds":   {"trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done", process.Exit{Code: 3}, []syscall.Signal{syscall.SIGTERM}},
	} {
		t.Run(name, func(t *testing.T) {
			g, _ := announced(t, 1, process.Command{Args: sh(c.line)})
			report := g.End(t.Context(), process.Ending{Grace: time.Minute, Hangup: true})
			if exit, err := g.Wait(waittest.Context(t, time.Second)); err != nil || exit != c.exit {
				t.Errorf("ended as %+v, %v", exit, err)
			}
			if got := kinds(report); !slices.Equal(got, c.sent) || len(report.Left) > 0 {
				t.Errorf("sent %v, left %v", got, report.Left)
			}
		})
	}
}
