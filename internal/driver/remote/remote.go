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

	"github.com/drover-dev/drover/internal/api/remoteapi"
	"github.com/drover-dev/drover/task"
)

// Service is where sessions live. [remote.Client] is one over HTTP. Its methods
// may be called by several goroutines. An error of which [remote.Passing] says
// that it may pass is met by trying again; the others end the task.
type Service interface {
	// Host is where it is, for people.
	Host() string
	// Create makes a session, or finds the one that the key of the request has
	// made already.
	Create(ctx context.Context, r remoteapi.Request) (session string, err error)
	// Poll reads what happened after a cursor, and how the session stands. It may
	// hold the answer back until there is something, for hold at most.
	Poll(ctx context.Context, session, cursor string, hold time.Duration) (remoteapi.Page, error)
	// Output reads output from an offset on, as much as it likes.
	Output(ctx context.Context, session string, offset int64) ([]byte, error)
	// Send gives the session a message.
	Send(ctx context.Context, session, text string) error
	// Archive ends the session. One that has ended is no error.
	Archive(ctx context.Context, session string) error
}

// Follower is a service that keeps something for a session that is followed. Release lets go of it, and does not
// change the session.
type Follower interface{ Release(session string) }

// Finder is a service that can find the session that a request has made without making one; empty: there is none. For
// others the same request is made again.
type Finder interface {
	Find(ctx context.Context, r remoteapi.Request) (session string, err error)
}

// Job is the input of a task.
type Job struct {
	Service  string          `json:"service"` // that [Config.Open] knows
	Type     remoteapi.Type  `json:"type,omitempty"`
	Prompt   string          `json:"prompt"`
	Metadata json.RawMessage `json:"metadata,omitempty"` // an object
}

// Bounds of a job.
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
	var object map[string]json.RawMessage
	t, err := remoteapi.ParseType(string(j.Type))
	j.Type = t
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

// Config is what all remote tasks of a host share. Open must be set.
type Config struct {
	// Open finds a service by the name in a job. It does no I/O.
	Open func(service string) (Service, error)
	// Sidecar is where the file of a task is that names its session; nil: none is
	// written.
	Sidecar  func(task.ID) string
	Checkers *remoteapi.Checkers // nil: none

	Base, Most time.Duration // between polls; see [remote.Pace]
	Offline    time.Duration // that a service may be out of reach; 0: 10 min
	Hold       time.Duration // for which a service may hold a poll back; negative: not; 0: 20 s
}

// Driver runs remote work. It serves many tasks at the same time.
type Driver struct {
	*shared
	open func(service string) (Service, error)
}

type shared struct {
	Config

	mu   sync.Mutex
	live map[task.ID]*work // at work; guarded by mu
}

// New makes a driver.
func New(c Config) *Driver {
	if c.Checkers == nil {
		c.Checkers = &remoteapi.Checkers{}
	}
	return &Driver{shared: &shared{Config: c, live: map[task.ID]*work{}}, open: c.Open}
}

// For returns a driver that finds services by open, and shares everything else.
func (d *Driver) For(open func(service string) (Service, error)) *Driver {
	return &Driver{shared: d.shared, open: open}
}

// Kind is [task.RemoteAgent].
func (d *Driver) Kind() task.Kind { return task.RemoteAgent }

// Check refuses input that is not a [Job].
func (d *Driver) Check(input json.RawMessage) error {
	_, err := parse(input)
	return err
}

// Adopts takes up all work of which a checkpoint tells: before the first, nothing
// was asked of the service.
func (d *Driver) Adopts(r task.Record) bool { return len(r.Checkpoint) > 0 }

// Steer gives the session of a running task a message.
func (d *Driver) Steer(ctx context.Context, id task.ID, text string) error {
	d.mu.Lock()
	w := d.live[id]
	d.mu.Unlock()
	if w == nil {
		return fmt.Errorf("remote task %s is not at work", id)
	}
	select {
	case <-w.attached:
	case <-w.ended:
		return fmt.Errorf("remote task %s has ended", id)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return w.service.Send(ctx, w.state.Session, text)
}

// state is the checkpoint of a task. Where it has read to is not in it: output
// goes on at the size of the local file, and events are read again from the
// beginning, since what they add up to is kept nowhere else.
type state struct {
	V        int             `json:"v"` // 1
	Stage    string          `json:"state"`
	Service  string          `json:"service"`
	Session  string          `json:"session,omitempty"` // of stage running
	Prompt   string          `json:"prompt,omitempty"`  // of stage creating: the record may have a part only
	Type     remoteapi.Type  `json:"type"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

const (
	stateVersion = 1
	creating     = "creating" // a session may be there; its key is the run
	running      = "running"
)

func readState(data []byte) (state, error) {
	var s state
	err := json.Unmarshal(data, &s)
	switch {
	case err != nil:
	case s.V != stateVersion:
		err = fmt.Errorf("it has version %d, this program knows %d", s.V, stateVersion)
	case s.Stage != creating && s.Stage != running:
		err = fmt.Errorf("its state %.20q is not known", s.Stage)
	case s.Stage == running:
		err = remoteapi.CheckSession(s.Session)
	}
	if err != nil {
		return s, fmt.Errorf("read checkpoint: %w", err)
	}
	return s, nil
}

// Run makes the session, or takes up the one that the checkpoint tells of, and
// follows it to its end.
func (d *Driver) Run(ctx context.Context, h task.Host) (task.Result, error) {
	w := &work{d: d.shared, h: h, rec: h.Record(), attached: make(chan struct{}), ended: make(chan struct{}),
		pace: remoteapi.Pace{Base: d.Base, Most: d.Most, Offline: d.Offline, Jitter: rand.Float64}}
	defer close(w.ended)
	if err := w.begin(ctx, d.open); err != nil {
		return task.Result{}, err
	}
	d.mu.Lock()
	d.live[w.rec.ID] = w
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.live, w.rec.ID)
		d.mu.Unlock()
	}()
	err := w.attach(ctx)
	var text string
	if err == nil {
		text, err = w.follow(ctx)
	}
	if f, ok := w.service.(Follower); ok {
		defer func() { f.Release(w.state.Session) }()
	}
	return w.end(ctx, text, err)
}
