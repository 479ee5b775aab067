package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// Job is the input of a task.
type Job struct {
	Service  string          `json:"service"` // a name of the settings, or the address of an agent card
	Type     string          `json:"type,omitempty"`
	Prompt   string          `json:"prompt"`
	Metadata json.RawMessage `json:"metadata,omitempty"` // an object
}

// Limits of a job, in bytes.
const (
	maxPrompt   = 1 << 20
	maxMetadata = 64 << 10
)

func parse(input json.RawMessage) (Job, error) {
	var j Job
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return j, fmt.Errorf("read remote job: %w", err)
	}
	if j.Type == "" {
		j.Type = control.RemoteAgent
	}
	var object map[string]json.RawMessage
	err := control.CheckRemoteType(j.Type)
	switch {
	case err != nil:
	case j.Service == "":
		err = errors.New("it names no service")
	case strings.TrimSpace(j.Prompt) == "":
		err = errors.New("the prompt is empty")
	case len(j.Prompt) > maxPrompt:
		err = fmt.Errorf("the prompt has %d bytes, %d are possible", len(j.Prompt), maxPrompt)
	case len(j.Metadata) > maxMetadata:
		err = fmt.Errorf("the metadata has %d bytes, %d are possible", len(j.Metadata), maxMetadata)
	case len(j.Metadata) > 0 && (json.Unmarshal(j.Metadata, &object) != nil || object == nil):
		err = errors.New("the metadata is not a JSON object")
	}
	if err != nil {
		return j, fmt.Errorf("read remote job: %w", err)
	}
	return j, nil
}

// Config configures the driver of a session.
type Config struct {
	Settings options.Remote
	Env      []string             // of the user, with the tokens of services
	Sidecar  func(task.ID) string // path of the file that names the remote task; nil: none is written
	Checkers map[string]Checker   // by type of remote work

	Base, Most time.Duration // between polls; see [Pace]
	Hold       time.Duration // how long a poll waits for news; negative: not at all; 0: 20 s
}

// Driver runs remote work. It serves many tasks at the same time. Close closes its connections.
type Driver struct {
	*shared
	env []string // of a client, with tokens that the session does not have
}

type shared struct {
	Config

	mu      sync.Mutex
	live    map[task.ID]*work      // running; guarded by mu
	clients map[target]*a2a.Client // guarded by mu
}

// target is an agent and the token for it.
type target struct{ card, token string }

// New makes a driver.
func New(c Config) *Driver {
	return &Driver{shared: &shared{Config: c, live: map[task.ID]*work{}, clients: map[target]*a2a.Client{}}}
}

// Kind is [task.RemoteAgent].
func (d *Driver) Kind() task.Kind { return task.RemoteAgent }

// Check refuses input that is not a [Job].
func (d *Driver) Check(input json.RawMessage) error {
	_, err := parse(input)
	return err
}

// Job returns the job of a request, and a driver that has the tokens of env, too.
func (d *Driver) Job(r control.RemoteRequest, env []string) (*Driver, Job, error) {
	j := Job{Service: r.Service, Type: r.Type, Prompt: r.Prompt, Metadata: r.Metadata}
	refuse := func(what, fix string) error { return &control.Error{Code: control.Invalid, Message: what, Fix: fix} }
	if j.Service == "" {
		j.Service = d.Settings.Usual()
	}
	if j.Service == "" {
		return nil, j, refuse("no remote service is named", "name one with --service, or set remote.services in your settings")
	}
	if j.Type == "" {
		j.Type = control.RemoteAgent
	}
	own := &Driver{shared: d.shared, env: env}
	err := control.CheckRemoteType(j.Type)
	if err == nil {
		_, err = own.client(j.Service)
	}
	if err != nil {
		return nil, j, refuse(err.Error(), "see docs/remote-agents.md")
	}
	return own, j, nil
}

// Usable reports whether the settings name a usable service for work that names none.
func (d *Driver) Usable() bool {
	set, ok := d.Settings.Services[d.Settings.Usual()]
	return ok && a2a.CheckCard(set.URL, set.AnyPath()) == nil
}

// client finds an agent by its name in the settings, or by the address of its card. It does no I/O.
func (d *Driver) client(service string) (*a2a.Client, error) {
	set, known := d.Settings.Services[service]
	if !known {
		if !strings.Contains(service, "://") {
			return nil, fmt.Errorf("remote service %.80q is not in the settings (see remote.services)", service)
		}
		set.URL = service
	}
	if err := a2a.CheckCard(set.URL, set.AnyPath()); err != nil {
		return nil, fmt.Errorf("remote service %.80q: %w", service, err)
	}
	to := target{card: set.URL}
	if set.TokenEnv != "" {
		if to.token = home.Lookup(d.env)(set.TokenEnv); to.token == "" {
			to.token = home.Lookup(d.Env)(set.TokenEnv)
		}
		if to.token == "" {
			return nil, fmt.Errorf("remote service %.80q: the variable %s with its token is not set", service, set.TokenEnv)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.clients[to]; c != nil {
		return c, nil
	}
	c, err := a2a.Dial(to.card, to.token)
	if err == nil {
		d.clients[to] = c
	}
	return c, err
}

// Close closes the connections to services, when no task runs any more.
func (d *Driver) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.clients {
		c.Close()
	}
}

// Adopts reports whether a task has a checkpoint: before the first, the agent was asked for nothing.
func (d *Driver) Adopts(r task.Record) bool { return len(r.Checkpoint) > 0 }

// Steer sends a message to the remote task of a running task.
func (d *Driver) Steer(ctx context.Context, id task.ID, text string) error {
	d.mu.Lock()
	w := d.live[id]
	d.mu.Unlock()
	if w == nil {
		return fmt.Errorf("send to remote task %s: it is not running", id)
	}
	select {
	case <-w.attached:
	case <-w.ended:
		return fmt.Errorf("send to remote task %s: it has ended", id)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return w.far.Send(ctx, text)
}

// state is the checkpoint of a task. It has no position: output continues at the size of the local file, and messages
// are read again from the beginning.
type state struct {
	V        int             `json:"v"` // 1
	Stage    string          `json:"state"`
	Service  string          `json:"service"`
	Session  string          `json:"session,omitempty"` // the remote task, of stage running
	Prompt   string          `json:"prompt,omitempty"`  // of stage creating: the record may have a part only
	Type     string          `json:"type"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

const (
	stateVersion = 1
	creating     = "creating" // the remote task may exist; its first message has the ID of the run
	running      = "running"
)

func readState(data []byte) (state, error) {
	var s state
	err := json.Unmarshal(data, &s)
	switch {
	case err != nil:
	case s.V != stateVersion:
		err = fmt.Errorf("version %d is not supported (this program reads version %d)", s.V, stateVersion)
	case s.Stage != creating && s.Stage != running:
		err = fmt.Errorf("unknown state %.20q", s.Stage)
	case s.Stage == running:
		err = a2a.CheckID(s.Session)
	}
	if err != nil {
		return s, fmt.Errorf("read checkpoint: %w", err)
	}
	return s, nil
}

// Run begins the remote task, or takes over the one in the checkpoint, and follows it to its end.
func (d *Driver) Run(ctx context.Context, h task.Host) (task.Result, error) {
	w := &work{d: d.shared, h: h, rec: h.Record(), attached: make(chan struct{}), ended: make(chan struct{}),
		pace: Pace{Base: d.Base, Most: d.Most, Offline: d.Settings.Offline, Jitter: rand.Float64}}
	defer close(w.ended)
	if err := w.begin(ctx, d.client); err != nil {
		return task.Result{Left: w.abandoned(err)}, err
	}
	d.mu.Lock()
	d.live[w.rec.ID] = w
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.live, w.rec.ID)
		d.mu.Unlock()
	}()
	defer func() {
		if w.far != nil {
			w.far.Close()
		}
	}()
	err := w.attach(ctx)
	var text string
	if err == nil {
		text, err = w.follow(ctx)
	}
	return w.end(ctx, text, err)
}
