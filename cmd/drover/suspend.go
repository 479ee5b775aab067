package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/engine/process"
)

// suspends makes Ctrl-Z hold the commands of a session before this process stands
// still, and lets them go on with it, until done is called: they have groups of their
// own, which the terminal does not know.
func (b *folder) suspends(s *assemble.Session) (done func()) {
	if signal.Ignored(syscall.SIGTSTP) { // nothing would continue it
		return func() {}
	}
	keys, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(keys, syscall.SIGTSTP)
	go func() { // ends with done, which waits for it
		defer close(over)
		for range keys {
			if process.HasShell() {
				b.suspend(s)
			}
		}
	}()
	return func() {
		signal.Stop(keys)
		close(keys)
		<-over
	}
}

func (b *folder) suspend(s *assemble.Session) {
	ctx := context.Background()
	goOn, err := s.Suspend(ctx)
	if err != nil { // a command that cannot be suspended continues
		b.note(err.Error())
	}
	standStill()
	if err := goOn(ctx); err != nil {
		b.note(err.Error())
	}
}
