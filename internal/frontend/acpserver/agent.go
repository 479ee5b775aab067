package acpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/acpwire"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/task"
)

// Bounds of a client.
const (
	maxLine     = 64 << 20 // bytes of a message
	maxRequests = 256      // at once
	maxSessions = 64       // open at once
)

// Agent is Drover as the agent of one client. All fields are required.
type Agent struct {
	In      io.Reader // of the client; a read ends with the client's stdin, not with a context
	Out     io.Writer
	Warn    io.Writer // for warnings to the user
	Version string    // of Drover
	Host    Host
}

// Host opens the sessions of a client.
type Host interface {
	// Open opens a session. It calls the functions of the opening until Close of the session has returned.
	Open(ctx context.Context, o Opening) (Session, error)
	// Sessions lists the conversations of a folder, or of all if it is empty, newest first.
	Sessions(ctx context.Context, folder string) ([]control.Info, error)
	// Fork makes a new session of the folder with the conversation of another one.
	Fork(ctx context.Context, folder string, from task.ID) (task.ID, error)
	// Remove deletes the files of a session that is not open.
	Remove(ctx context.Context, id task.ID) error
}

// Opening says which session to open, and receives its events.
type Opening struct {
	Folder  string   // absolute
	Session task.ID  // an earlier one; empty: a new one
	Dirs    []string // further folders that tools may use; absolute
	MCP     string   // servers of the client, in the form of .mcp.json; empty: none

	// On receives the events of agents: of the main one, whose ID is that of the session, and of others.
	// Events of one agent come one at a time.
	On func(from task.ID, e agent.Event)
	// Begin and Done receive each turn of the main agent, in order.
	Begin func(Trigger)
	Done  func(Turn)
}

// Trigger is the reason for a turn.
type Trigger struct {
	Origin string   // empty: a prompt of a user
	Prompt string   // of a turn without an origin
	Seq    task.Seq // of that prompt
}

// Turn is a turn that has ended.
type Turn struct {
	Result agent.TurnResult
	Err    error
	Beside bool // the model was not called, so no event had the text of the result
}

// Session is an open session.
type Session interface {
	API() control.API
	ID() task.ID
	// History yields the messages of the conversation so far, oldest first.
	History(each func(agent.Record) error) error
	// Todos returns the to-dos of the session.
	Todos(ctx context.Context) (todo.List, error)
	// Usage returns the tokens and the cost of the session.
	Usage() Usage
	// Entitle names a session by its first prompt; empty: it has a name.
	Entitle(prompt string) string
	// Newest returns the number of the newest event.
	Newest() task.Seq
	// Run lets the main agent answer prompts and mail, until Close. It is called once.
	Run()
	// Ended is closed when the session ends by itself, for example because its folder was removed.
	Ended() <-chan struct{}
	// Close ends everything that the session has begun, in order.
	Close() error
}

// Usage is the use of a session.
type Usage struct {
	Tokens, Window int64 // of the model's context; 0: the window is unknown
	USD            float64
	CostKnown      bool
}

// method begins a request. It is called in the order of arrival.
type method func(params json.RawMessage) (acpwire.Work, error)

// server is one client and its sessions.
type server struct {
	cfg     Agent
	conn    *acpwire.Conn
	methods map[string]method
	client  atomic.Pointer[initializeRequest] // set by initialize

	mu       sync.Mutex
	sessions map[acp.SessionId]*session
	opening  int // sessions that are being opened
}

// Serve answers one client until it closes stdin, closes all its sessions, and returns nil. An error means
// that ctx has ended, or that the client does not read.
func (cfg Agent) Serve(ctx context.Context) error {
	s := &server{cfg: cfg, sessions: map[acp.SessionId]*session{}}
	s.client.Store(&initializeRequest{})
	s.methods = map[string]method{
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
	s.conn = acpwire.New(cfg.In, cfg.Out, acpwire.Options{
		MaxLine: maxLine, MaxRequests: maxRequests, Begin: s.begin, Warn: s.warn,
		Fault: func(f acpwire.Fault) bool {
			s.warn("a message of the client was refused: %s", f.Err.Message)
			return true
		},
	})
	err := s.conn.Serve(ctx)
	closed := s.closeAll()
	s.conn.Close()
	return errors.Join(err, closed)
}

func (s *server) warn(format string, args ...any) {
	fmt.Fprintf(s.cfg.Warn, "drover: "+format+"\n", args...)
}

// begin begins a request; see [acpwire.Options].
func (s *server) begin(name string, params json.RawMessage) (acpwire.Work, error) {
	do, known := s.methods[name]
	if !known {
		e := acp.NewMethodNotFound(name)
		e.Message = fmt.Sprintf("method %.80q is not known", name)
		return nil, e
	}
	work, err := do(params)
	if err != nil || work == nil {
		return nil, describe(err)
	}
	return func(ctx context.Context) (any, error) {
		result, err := work(ctx)
		return result, describe(err)
	}, nil
}

// later makes a method of a function that may run in any order.
func later[P any](do func(context.Context, P) (any, error)) method {
	return atOnce(func(p P) (acpwire.Work, error) {
		return func(ctx context.Context) (any, error) { return do(ctx, p) }, nil
	})
}

// atOnce makes a method of a function that begins in the order of requests.
func atOnce[P any](do func(P) (acpwire.Work, error)) method {
	return func(params json.RawMessage) (acpwire.Work, error) {
		var p P
		if len(params) == 0 {
			params = json.RawMessage("{}")
		}
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, invalid("read the parameters: %v", err)
		}
		if c, ok := any(&p).(interface{ Validate() error }); ok {
			if err := c.Validate(); err != nil {
				return nil, invalid("the parameters are incomplete: %v", err)
			}
		}
		return do(p)
	}
}

func invalid(format string, args ...any) error {
	return acpwire.Refuse(acp.NewInvalidParams, format, args...)
}

// describe maps an error of the session to an error of the protocol.
func describe(err error) error {
	var c *control.Error
	if !errors.As(err, &c) {
		return err
	}
	kind := acp.NewInternalError
	switch c.Code {
	case control.Invalid:
		kind = acp.NewInvalidParams
	case control.NotFound:
		kind = newNotFound
	case control.Conflict:
		kind = acp.NewInvalidRequest
	}
	return acpwire.Refuse(kind, "%s", c.Error())
}

// initialize agrees on version 1, the only one.
func (s *server) initialize(_ context.Context, p initializeRequest) (any, error) {
	s.client.Store(&p)
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
func (s *server) authenticate(context.Context, acp.AuthenticateRequest) (any, error) {
	return nil, invalid("authenticate: Drover has no methods (set the key of the provider, see `drover doctor`)")
}

// find returns an open session.
func (s *server) find(id acp.SessionId) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.sessions[id]; one != nil {
		return one, nil
	}
	return nil, acpwire.Refuse(newNotFound,
		"session %.80q is not open here (open it with session/new or session/load)", string(id))
}

// take returns an open session and removes it.
func (s *server) take(id acp.SessionId) (*session, error) {
	one, err := s.find(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, id)
	return one, err
}

func (s *server) closeSession(_ context.Context, p acp.CloseSessionRequest) (any, error) {
	one, err := s.take(p.SessionId)
	if err == nil {
		err = one.close()
	}
	return acp.CloseSessionResponse{}, err
}

// closeAll closes all sessions concurrently.
func (s *server) closeAll() error {
	s.mu.Lock()
	all := s.sessions
	s.sessions = nil
	s.mu.Unlock()
	var closing sync.WaitGroup
	errs := make(chan error, len(all))
	for _, one := range all {
		closing.Go(func() { errs <- one.close() })
	}
	closing.Wait()
	close(errs)
	var err error
	for one := range errs {
		err = errors.Join(err, one)
	}
	return err
}

// prompt begins to answer a prompt. A session answers one at a time.
func (s *server) prompt(p acp.PromptRequest) (acpwire.Work, error) {
	one, err := s.find(p.SessionId)
	if err != nil {
		return nil, err
	}
	return one.prompt(p)
}

// cancel ends the turn of a session.
func (s *server) cancel(p acp.CancelNotification) (acpwire.Work, error) {
	if one := s.findChild(p.SessionId); one != nil {
		return func(context.Context) (any, error) {
			one.interruptChild(p.SessionId)
			return nil, nil
		}, nil
	}
	one, err := s.find(p.SessionId)
	if err == nil {
		one.cancel()
	}
	return nil, err
}
