package acpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// maxSessions is how many sessions one client may have open.
const maxSessions = 64

// Config is what an agent is made of. All fields are required.
type Config struct {
	In      io.Reader // of the client; a read ends with the client's stdin, not with a context
	Out     io.Writer
	Warn    io.Writer // what the user should read
	Version string    // of Drover
	Host    Host
}

// Host opens the sessions of a client.
type Host interface {
	// Open opens a session. Its functions are called until Close of the session has
	// returned.
	Open(ctx context.Context, o Opening) (Session, error)
	// Sessions are the conversations of a folder, or of all, newest first.
	Sessions(ctx context.Context, folder string) ([]control.Info, error)
	// Fork makes a new session of the folder with the conversation of another one.
	Fork(ctx context.Context, folder string, from task.ID) (task.ID, error)
	// Remove deletes what a session left that is not open.
	Remove(ctx context.Context, id task.ID) error
}

// Opening says which session is opened, and who is told what happens in it.
type Opening struct {
	Folder  string   // absolute
	Session task.ID  // an earlier one; empty: a new one
	Dirs    []string // further folders that tools may use; absolute
	MCP     string   // servers of the client, in the form of .mcp.json; empty: none

	// On is told what agents do: the main one, whose ID is that of the session, and others.
	// Events of one agent come one at a time.
	On func(from task.ID, e agent.Event)
	// Begin and Done are told of each turn of the main agent, in order.
	Begin func(Trigger)
	Done  func(Turn)
}

// Trigger is what a turn begins with.
type Trigger struct {
	Origin string   // empty: a prompt of a user
	Prompt string   // of a turn without an origin
	Seq    task.Seq // of that prompt
}

// Turn is a turn that has ended.
type Turn struct {
	Result agent.TurnResult
	Err    error
	Beside bool // the model was not asked: the text of the result is shown nowhere else
}

// Session is an open session.
type Session interface {
	control.API
	// ID is the ID of the session.
	ID() task.ID
	// History gives the messages of the conversation so far, oldest first.
	History(each func(agent.Record) error) error
	// Todos are the to-dos of the session.
	Todos(ctx context.Context) ([]Todo, error)
	// Usage is what the session has used.
	Usage() Usage
	// Entitle names a session by its first prompt; empty: it has a name.
	Entitle(prompt string) string
	// Newest is the number of the newest event.
	Newest() task.Seq
	// Run lets the main agent answer prompts and mail, until Close. It is called once.
	Run()
	// Ended is closed when the session ends by itself, such as when its folder is removed.
	Ended() <-chan struct{}
	// Close ends everything that the session has begun, in order.
	Close() error
}

// Todo is one to-do.
type Todo struct {
	Text   string
	Status string // pending, in_progress or completed
}

// Usage is what a session has used.
type Usage struct {
	Tokens, Window int64 // of the model's context; without a window it is not known
	USD            float64
	CostKnown      bool
}

// served is one client and its sessions.
type served struct {
	cfg    Config
	conn   *conn
	client client

	mu       sync.Mutex
	sessions map[acp.SessionId]*session
	opening  int // sessions that are being opened
}

// client is what the client offers. It is set by initialize.
type client struct {
	mu        sync.Mutex
	offer     acp.ClientCapabilities
	subagents bool // it shows subagents as sessions
}

func (c *client) set(r initializeRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offer, c.subagents = r.ClientCapabilities, r.subagents
}

// children is what shows subagents as sessions; nil: the client knows no such sessions.
func (c *client) children() *children {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.subagents {
		return nil
	}
	return &children{known: map[task.ID]*child{}}
}

func (c *client) get() acp.ClientCapabilities {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offer
}

// forms reports whether the client shows forms.
func (c *client) forms() bool {
	e := c.get().Elicitation
	return e != nil && (e.Form != nil || e.Url == nil)
}

// Serve answers one client until it closes stdin, then closes all its sessions and returns
// nil. With an error ctx has ended, or the client reads no more.
func Serve(ctx context.Context, cfg Config) error {
	warn := func(format string, args ...any) { fmt.Fprintf(cfg.Warn, "drover: "+format+"\n", args...) }
	s := &served{cfg: cfg, conn: newConn(cfg.In, cfg.Out, warn), sessions: map[acp.SessionId]*session{}}
	err := s.conn.serve(ctx, s.begin)
	closed := s.closeAll()
	s.conn.close()
	return errors.Join(err, closed)
}

// begin implements [begin].
func (s *served) begin(method string, params json.RawMessage) (work, error) {
	do, known := s.methods()[method]
	if !known {
		e := acp.NewMethodNotFound(method)
		e.Message = fmt.Sprintf("method %.80q is not known", method)
		return nil, e
	}
	return do(params)
}

// methods are those of the protocol that Drover has.
func (s *served) methods() map[string]func(json.RawMessage) (work, error) {
	return map[string]func(json.RawMessage) (work, error){
		acp.AgentMethodInitialize:    later(s.initialize),
		acp.AgentMethodAuthenticate:  later(s.authenticate),
		acp.AgentMethodSessionNew:    later(s.newSession),
		acp.AgentMethodSessionLoad:   later(s.load),
		acp.AgentMethodSessionResume: later(s.resume),
		acp.AgentMethodSessionFork:   later(s.fork),
		acp.AgentMethodSessionList:   later(s.list),
		acp.AgentMethodSessionClose:  later(s.closeSession),
		deleteMethod:                 later(s.delete),
		acp.AgentMethodSessionPrompt: atOnce(s.prompt),
		acp.AgentMethodSessionCancel: atOnce(s.cancel),

		acp.AgentMethodSessionSetMode:         later(s.setMode),
		acp.AgentMethodSessionSetModel:        later(s.setModel),
		acp.AgentMethodSessionSetConfigOption: later(s.setOption),
	}
}

// checked is a request that says what is wrong with it.
type checked interface{ Validate() error }

// later makes a method of a function that needs no order.
func later[P any](do func(context.Context, P) (any, error)) func(json.RawMessage) (work, error) {
	return atOnce(func(p P) (work, error) {
		return func(ctx context.Context) (any, error) { return do(ctx, p) }, nil
	})
}

// atOnce makes a method of a function that begins in the order of requests.
func atOnce[P any](do func(P) (work, error)) func(json.RawMessage) (work, error) {
	return func(params json.RawMessage) (work, error) {
		var p P
		if len(params) == 0 {
			params = json.RawMessage("{}")
		}
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, refuse(acp.NewInvalidParams, fmt.Sprintf("read the parameters: %v", err))
		}
		if c, ok := any(&p).(checked); ok {
			if err := c.Validate(); err != nil {
				return nil, refuse(acp.NewInvalidParams, fmt.Sprintf("the parameters are incomplete: %v", err))
			}
		}
		return do(p)
	}
}

// describe is an error as the client is told of it.
func describe(err error) *acp.RequestError {
	var e *acp.RequestError
	var c *control.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &c):
		kind := acp.NewInternalError
		switch c.Code {
		case control.Invalid:
			kind = acp.NewInvalidParams
		case control.NotFound:
			kind = newNotFound
		case control.Conflict:
			kind = acp.NewInvalidRequest
		}
		return refuse(kind, c.Error())
	case errors.Is(err, errWithdrawn):
		return refuse(acp.NewRequestCancelled, err.Error())
	}
	return refuse(acp.NewInternalError, err.Error())
}

// initialize agrees on the version: the one that the client speaks if we do, else the
// highest of ours.
func (s *served) initialize(_ context.Context, p initializeRequest) (any, error) {
	s.client.set(p)
	return withDelete(acp.InitializeResponse{
		ProtocolVersion: acp.ProtocolVersionNumber,
		AgentInfo:       &acp.Implementation{Name: "drover", Title: acp.Ptr("Drover"), Version: s.cfg.Version},
		AuthMethods:     []acp.AuthMethod{},
		AgentCapabilities: acp.AgentCapabilities{
			LoadSession:        true,
			McpCapabilities:    acp.McpCapabilities{Http: true, Sse: true},
			PromptCapabilities: acp.PromptCapabilities{Image: true, EmbeddedContext: true},
			SessionCapabilities: acp.SessionCapabilities{
				AdditionalDirectories: &acp.SessionAdditionalDirectoriesCapabilities{},
				Close:                 &acp.SessionCloseCapabilities{}, Fork: &acp.SessionForkCapabilities{},
				List: &acp.SessionListCapabilities{}, Resume: &acp.SessionResumeCapabilities{},
			},
		},
	})
}

// authenticate is never needed: the keys of providers are in the environment or the settings.
func (s *served) authenticate(context.Context, acp.AuthenticateRequest) (any, error) {
	return nil, refuse(acp.NewInvalidParams, "authenticate: there are no methods (set the key of the provider, see `drover doctor`)")
}

// find is an open session.
func (s *served) find(id acp.SessionId) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.sessions[id]; one != nil {
		return one, nil
	}
	return nil, refuse(newNotFound, fmt.Sprintf("session %.80q is not open here (open it with session/new or session/load)", id))
}

// take is find, and nobody else finds the session any more.
func (s *served) take(id acp.SessionId) (*session, error) {
	one, err := s.find(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, id)
	return one, err
}

func (s *served) closeSession(_ context.Context, p acp.CloseSessionRequest) (any, error) {
	one, err := s.take(p.SessionId)
	if err != nil {
		return nil, err
	}
	if err := one.close(); err != nil {
		return nil, err
	}
	return acp.CloseSessionResponse{}, nil
}

// closeAll closes all sessions side by side.
func (s *served) closeAll() error {
	s.mu.Lock()
	all := s.sessions
	s.sessions = nil
	s.mu.Unlock()
	var mu sync.Mutex
	var errs []error
	var closing sync.WaitGroup
	for _, one := range all {
		closing.Go(func() {
			err := one.close()
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	closing.Wait()
	return errors.Join(errs...)
}

// prompt begins to answer a prompt. A session answers one at a time.
func (s *served) prompt(p acp.PromptRequest) (work, error) {
	one, err := s.find(p.SessionId)
	if err != nil {
		return nil, err
	}
	return one.prompt(p)
}

// cancel ends the turn of a session.
func (s *served) cancel(p acp.CancelNotification) (work, error) {
	if one := s.findChild(p.SessionId); one != nil {
		return func(context.Context) (any, error) {
			one.interruptChild(p.SessionId)
			return nil, nil
		}, nil
	}
	one, err := s.find(p.SessionId)
	if err != nil {
		return nil, err
	}
	one.cancel()
	return nil, nil
}
