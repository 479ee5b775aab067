// Package notify announces items that need the user on the desktop, by a webhook, by ntfy, or by a command of the user.
//
// It owns the channels and the queue of one session's attention list. It promises that an item is announced once, after
// it has waited for a configured time, together with all other waiting items, and that nothing is announced in quiet
// hours: items that still wait at their end come as one message. It does not answer items, and does not announce in
// terminals, which do that themselves.
package notify

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/daypart"
	"github.com/drover-dev/drover/task"
)

const (
	listWait = time.Minute     // of one request for another list
	failed   = 5 * time.Second // between failed requests
	lastTime = 3 * time.Second // for the last announcements at the end of a process
	lastList = time.Second     // of it, for the list
)

// Config configures a [Notifier].
type Config struct {
	Desktop             bool
	Command             string // for the shell; it reads an [Announcement] on stdin
	Webhook, WebhookKey string // an address, and the bearer token for it
	Ntfy, NtfyKey       string // the address of a topic, and its access token

	After    time.Duration // before an item is announced
	Blocking bool          // do not announce failures
	Quiet    string        // part of the day without announcements; empty: none

	Version string
	Tell    func(text string) // receives each problem once
	// Run runs a program of the user and leaves no process.
	Run func(ctx context.Context, args []string, stdin []byte) error

	client *http.Client
}

// Notifier follows one session.
type Notifier struct {
	cfg      Config
	channels []channel
	queue    queue
	told     map[string]bool // problems

	stop context.CancelFunc // cancels everything
	end  context.CancelFunc // cancels requests for lists: the session is about to end
	work sync.WaitGroup
}

// New returns a notifier; nil: the configuration has no channel.
func New(cfg Config) *Notifier {
	cfg.client = client()
	channels, problems := cfg.channels()
	loud, err := daypart.Parse(cfg.Quiet)
	if err != nil {
		problems = append(problems, problem{"notify.quiet", err})
	}
	for _, p := range problems {
		cfg.Tell(p.setting + " is ignored: " + p.err.Error())
	}
	if len(channels) == 0 {
		return nil
	}
	return &Notifier{cfg: cfg, channels: channels, told: map[string]bool{},
		queue: queue{after: cfg.After, blocking: cfg.Blocking, loud: loud.Rest(), opened: time.Now()}}
}

// client follows no redirects, which could send the key to another server.
func client() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: t, CheckRedirect: stay}
}

// Open starts to follow a session, until Close.
func (n *Notifier) Open(s control.API) {
	ctx, stop := context.WithCancel(context.Background())
	lists, end := context.WithCancel(ctx)
	n.stop, n.end = stop, end
	n.work.Go(func() {
		n.follow(ctx, lists, s)
		n.finish(ctx, s)
	})
}

// Ended announces the waiting items of a detached session before the session ends.
func (n *Notifier) Ended(task.Seq) {
	if n.end == nil {
		return
	}
	n.end()
	defer time.AfterFunc(lastTime, n.stop).Stop()
	n.work.Wait()
}

// Close cancels open announcements.
func (n *Notifier) Close() {
	if n.stop != nil {
		n.stop()
	}
	n.work.Wait()
	n.cfg.client.CloseIdleConnections()
}

// follow announces until lists ends.
func (n *Notifier) follow(ctx, lists context.Context, s control.API) {
	req := control.AttentionRequest{}
	for lists.Err() == nil {
		list, err := s.Attention(lists, req)
		if err != nil {
			select {
			case <-time.After(failed):
			case <-lists.Done():
			}
			continue
		}
		now := time.Now()
		n.queue.see(list.Items, now)
		batch, wait := n.queue.take(now)
		n.announce(ctx, batch)
		req = control.AttentionRequest{After: list.Version, Wait: listWait}
		if wait > 0 {
			req.Wait = min(wait, listWait)
		}
	}
}

// finish announces the failures of a detached session, whose list no client will read.
func (n *Notifier) finish(ctx context.Context, s control.API) {
	short, cancel := context.WithTimeout(ctx, lastList)
	defer cancel()
	if info, err := s.Info(short); err != nil || !info.Detached {
		return
	}
	list, err := s.Attention(short, control.AttentionRequest{})
	if err != nil {
		return
	}
	now := time.Now()
	n.queue.after = 0
	n.queue.see(slices.DeleteFunc(list.Items, func(i control.AttentionItem) bool { return !i.Past() }), now)
	for k := range n.queue.waiting {
		n.queue.waiting[k].due = now
	}
	batch, _ := n.queue.take(now)
	n.announce(ctx, batch)
}

// announce sends one message to all channels concurrently.
func (n *Notifier) announce(ctx context.Context, batch []control.AttentionItem) {
	if len(batch) == 0 {
		return
	}
	m, err := compose(batch)
	if err != nil {
		n.tell("notify: " + err.Error())
		return
	}
	errs := make([]error, len(n.channels))
	var group sync.WaitGroup
	for i, c := range n.channels {
		group.Go(func() { errs[i] = c.send(ctx, m) })
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			n.tell(n.channels[i].name + ": " + err.Error())
		}
	}
}

func (n *Notifier) tell(text string) {
	if !n.told[text] && len(n.told) < 20 {
		n.told[text] = true
		n.cfg.Tell(text)
	}
}

// Sent is the result of a message to a channel.
type Sent struct {
	Channel string // the setting
	Err     error
}

// Try sends a test message to all configured channels, also in quiet hours.
func Try(ctx context.Context, cfg Config) []Sent {
	cfg.client = client()
	defer cfg.client.CloseIdleConnections()
	channels, problems := cfg.channels()
	out := make([]Sent, 0, len(channels)+len(problems))
	m := message{title: "Drover", text: "This is how Drover notifies you when something needs you."}
	m.json = []byte(`{"title":"Drover","text":"Drover\n` + m.text + `","items":[]}`)
	for _, c := range channels {
		out = append(out, Sent{c.name, c.send(ctx, m)})
	}
	for _, p := range problems {
		out = append(out, Sent{p.setting, p.err})
	}
	return out
}
