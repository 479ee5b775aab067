// Package notify tells the user of what needs them while they look elsewhere: by a notification of the
// desktop, a webhook, ntfy, or a command of theirs.
//
// It follows the attention list of one session. An item that is still there after a while is announced once,
// together with all that wait then; in quiet hours nothing is announced, and what still waits at their end
// comes as one message. It answers nothing, and terminals announce what needs the user by themselves.
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
	listWait = time.Minute     // that one request for another list waits
	failed   = 5 * time.Second // between requests that fail
	lastTime = 3 * time.Second // that a process takes longer at its end for what was not sent yet
	lastList = time.Second     // of it for the list
)

// Config configures a [Notifier].
type Config struct {
	Desktop             bool
	Command             string // for the shell; it reads an [Announcement] on stdin
	Webhook, WebhookKey string // an address, and the bearer token for it
	Ntfy, NtfyKey       string // the address of a topic, and its access token

	After    time.Duration // for which an item waits for an answer, and for others
	Blocking bool          // failures are not announced
	Quiet    string        // part of the day in which nothing is announced; empty: none

	Version string
	Tell    func(text string) // of problems, each once
	// Run runs a program of the user, and leaves no process.
	Run func(ctx context.Context, args []string, stdin []byte) error

	client *http.Client
}

// Notifier follows one session.
type Notifier struct {
	cfg      Config
	channels []channel
	queue    queue
	told     map[string]bool // problems

	stop context.CancelFunc // of all of it
	end  context.CancelFunc // of requests for lists: the session is about to end
	work sync.WaitGroup
}

// New returns the notifier that the configuration asks for, or nil.
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

// client follows no redirect, which could take the key elsewhere.
func client() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: t, CheckRedirect: stay}
}

// Open begins to follow a session, until Close.
func (n *Notifier) Open(s control.API) {
	ctx, stop := context.WithCancel(context.Background())
	lists, end := context.WithCancel(ctx)
	n.stop, n.end = stop, end
	n.work.Go(func() {
		n.follow(ctx, lists, s)
		n.finish(ctx, s)
	})
}

// Ended announces what still waits in a session that nobody looks at, before its list is gone.
func (n *Notifier) Ended(task.Seq) {
	if n.end == nil {
		return
	}
	n.end()
	defer time.AfterFunc(lastTime, n.stop).Stop()
	n.work.Wait()
}

// Close ends what is still being sent.
func (n *Notifier) Close() {
	if n.stop != nil {
		n.stop()
	}
	n.work.Wait()
	n.cfg.client.CloseIdleConnections()
}

// follow announces until no further list is wanted.
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

// finish announces the failures that a detached session leaves: nobody looks at it, and no one asks for
// its list any more.
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
	n.queue.see(slices.DeleteFunc(list.Items, func(i control.AttentionItem) bool { return i.Kind != failure }), now)
	for k := range n.queue.waiting {
		n.queue.waiting[k].due = now
	}
	batch, _ := n.queue.take(now)
	n.announce(ctx, batch)
}

// announce sends one message by all channels at once.
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

// Sent is what became of a message of a channel.
type Sent struct {
	Channel string // the setting
	Err     error
}

// Try sends a message by all channels that the configuration names, at any hour.
func Try(ctx context.Context, cfg Config) []Sent {
	cfg.client = client()
	defer cfg.client.CloseIdleConnections()
	channels, problems := cfg.channels()
	out := make([]Sent, 0, len(channels)+len(problems))
	m := message{title: "Drover", text: "This is what you will see when something needs you."}
	m.json = []byte(`{"title":"Drover","text":"Drover\n` + m.text + `","items":[]}`)
	for _, c := range channels {
		out = append(out, Sent{c.name, c.send(ctx, m)})
	}
	for _, p := range problems {
		out = append(out, Sent{p.setting, p.err})
	}
	return out
}
