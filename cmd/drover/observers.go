package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/frontend/cli/attention"
	"github.com/drover-dev/drover/internal/frontend/notify"
	"github.com/drover-dev/drover/internal/frontend/telemetry"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/task"
)

// observers follow a session in parallel.
type observers []assemble.Observer

func (o observers) Agent(from task.ID, e agent.Event) {
	for _, one := range o {
		one.Agent(from, e)
	}
}

func (o observers) Open(s *assemble.Session) {
	for _, one := range o {
		one.Open(s)
	}
}

func (o observers) Ended(last task.Seq) {
	for _, one := range o {
		one.Ended(last)
	}
}

func (o observers) Close() {
	for _, one := range o {
		one.Close()
	}
}

// observer follows sessions as the settings say; nil: nothing does.
func (b *folder) observer(set settings.Settings) assemble.Observer {
	var all observers
	t := set.Telemetry
	x := telemetry.New(telemetry.Config{Mode: t.Mode, Endpoint: t.Endpoint, Content: t.Content, Env: home.Lookup(b.env),
		Version: b.version, Tell: b.note})
	if x != nil {
		all = append(all, exporter{x})
	}
	if n := notify.New(b.notifying(set)); n != nil {
		all = append(all, notifier{n})
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

type exporter struct{ *telemetry.Exporter }

func (e exporter) Open(s *assemble.Session) { e.Exporter.Open(s) }

type notifier struct{ *notify.Notifier }

func (notifier) Agent(task.ID, agent.Event) {}

func (n notifier) Open(s *assemble.Session) { n.Notifier.Open(s) }

// notifying is the configuration of messages to the user.
func (b *folder) notifying(set settings.Settings) notify.Config {
	c, env := set.Notify, home.Lookup(b.env)
	key := func(name string) string {
		if name == "" {
			return ""
		}
		return env(name)
	}
	return notify.Config{Desktop: c.Desktop, Command: c.Command, Webhook: c.Webhook, WebhookKey: key(c.WebhookKeyEnv),
		Ntfy: c.Ntfy, NtfyKey: key(c.NtfyKeyEnv), After: c.After, Blocking: c.When == "blocking", Quiet: c.Quiet,
		Version: b.version, Run: b.runQuietly, Tell: b.note}
}

// TryNotify sends a message by all ways that the settings name.
func (b attending) TryNotify(ctx context.Context) ([]attention.Sent, error) {
	set, err := b.Settings("")
	if err != nil {
		return nil, err
	}
	sent := notify.Try(ctx, b.notifying(set))
	out := make([]attention.Sent, len(sent))
	for i, s := range sent {
		out[i] = attention.Sent(s)
	}
	return out, nil
}

// lastWords limits reading the output of a program after its end.
const lastWords = time.Second

// runQuietly runs a program without a terminal until it ends or ctx does, and leaves nothing of its group.
// The error has the last line of its output.
func (b *folder) runQuietly(ctx context.Context, args []string, stdin []byte) error {
	childIn, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	out, childOut, err := os.Pipe()
	if err != nil {
		return errors.Join(err, childIn.Close())
	}
	defer out.Close()
	group, err := process.StartGroup(process.Command{Args: args, Dir: "/", Env: b.env, Stdin: childIn, Stdout: childOut,
		Stderr: childOut, Session: true})
	_, _ = childIn.Close(), childOut.Close()
	if err != nil {
		return err
	}
	defer group.Close()
	const kept = 4 << 10
	var flows sync.WaitGroup
	said := []byte{}
	flows.Go(func() {
		_, _ = in.Write(stdin) // a program that does not read it has no use for it
		_ = in.Close()
	})
	flows.Go(func() {
		part := make([]byte, kept)
		for {
			n, err := out.Read(part)
			said = append(said, part[:n]...)
			if said = said[max(0, len(said)-kept):]; err != nil {
				return
			}
		}
	})
	exit, err := group.Wait(ctx)
	if err != nil || group.Reap() {
		group.End(context.Background(), process.Ending{})
		group.Reap()
	}
	deadline := time.Now().Add(lastWords) // for processes outside the group that hold the pipes
	_, _ = in.SetWriteDeadline(deadline), out.SetReadDeadline(deadline)
	flows.Wait()
	switch {
	case err != nil:
		return fmt.Errorf("%s has not ended: %w", args[0], err)
	case exit.Signal != 0:
		return fmt.Errorf("%s was ended by %v", args[0], exit.Signal)
	case exit.Code != 0:
		lines := strings.Split(strings.TrimSpace(string(said)), "\n")
		last := excerpt.Line(lines[len(lines)-1], 300)
		return errors.New(cmp.Or(last, fmt.Sprintf("%s ended with exit code %d", args[0], exit.Code)))
	}
	return nil
}
