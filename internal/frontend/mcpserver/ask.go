package mcpserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

const (
	inlineQuestions = "2026-07-28" // from this revision on, questions go out in the answer of a call
	questionKey     = "permission" // of the only question in such an answer
	maxAsked        = 1000         // questions that went out and were not answered
	maxParents      = 20           // from the task that asks to the one that is waited for
	approvalsWait   = 30 * time.Second
)

// permissionForm is what the client's user fills in.
const permissionForm = `{"type":"object","required":["decision"],"properties":{` +
	`"decision":{"type":"string","title":"Decision","enum":["allow","deny"],"description":"Whether this one call may run."},` +
	`"reason":{"type":"string","title":"Reason","description":"Told to the agent when you deny."}}}`

// inputNeeded ends a call whose client asks its user and then repeats the call.
type inputNeeded struct {
	params *mcp.ElicitParams
	state  string
}

func (e *inputNeeded) Error() string { return "the call needs an answer of the user" }

func (e *inputNeeded) result() *mcp.CallToolResult {
	return &mcp.CallToolResult{
		InputRequests: mcp.InputRequestMap{questionKey: e.params}, RequestState: e.state,
	}
}

// asked is what went out with the answer of a call.
type asked struct {
	task     task.ID // that the call had started, or empty
	question task.Question
	seen     map[string]bool // questions that went out for this call; its user may have put some away
}

// askedBook keeps what went out until the client comes back with it. The client gets a
// random key only, so it can answer nothing that it was not asked.
type askedBook struct {
	mu   sync.Mutex
	list map[string]asked
	keys []string // the oldest first
}

func (b *askedBook) put(a asked) (key string) {
	key = rand.Text()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.list == nil {
		b.list = map[string]asked{}
	}
	if len(b.keys) >= maxAsked {
		delete(b.list, b.keys[0])
		b.keys = slices.Delete(b.keys, 0, 1)
	}
	b.list[key] = a
	b.keys = append(b.keys, key)
	return key
}

func (b *askedBook) take(key string) (asked, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, ok := b.list[key]
	delete(b.list, key)
	b.keys = slices.DeleteFunc(b.keys, func(k string) bool { return k == key })
	return a, ok
}

// resume takes in the answer that a repeated call brings; again is false for a call that
// is made for the first time.
func (s *server) resume(ctx context.Context, req *mcp.CallToolRequest) (before asked, again bool, err error) {
	if req.Params.RequestState == "" {
		return asked{seen: map[string]bool{}}, false, nil
	}
	before, ok := s.asked.take(req.Params.RequestState)
	if !ok {
		return before, false, errors.New("the requestState is unknown or was used before (make the call without it)")
	}
	res, _ := req.Params.InputResponses[questionKey].(*mcp.ElicitResult)
	return before, true, s.decide(ctx, before.question, res)
}

// canAsk reports whether the client shows forms to its user.
func canAsk(req *mcp.CallToolRequest) bool {
	c := req.ClientCapabilities()
	if c == nil || c.Elicitation == nil {
		return false
	}
	e := c.Elicitation
	return e.Form != nil || e.URL == nil
}

// attend waits for tasks, and meanwhile puts the permissions that they and the tasks
// below them ask for to the client's user. The time of the user does not count as time
// of waiting. call is what the call has started and asked before.
func (s *server) attend(
	ctx context.Context, req *mcp.CallToolRequest, wait control.WaitRequest, call asked,
) (control.WaitReply, error) {
	if !canAsk(req) {
		return s.wait(ctx, wait)
	}
	for {
		reply, q, err := s.waitOrQuestion(ctx, wait, call.seen)
		if err != nil || q == nil {
			return reply, err
		}
		call.seen[q.ID] = true
		params := q.form()
		if req.ProtocolVersion() >= inlineQuestions {
			call.question = q.Question
			return reply, &inputNeeded{params, s.asked.put(call)}
		}
		if err := s.elicit(ctx, req, q.Question, params); err != nil {
			return reply, err
		}
	}
}

// shownQuestion is a question with its input as a person reads it.
type shownQuestion struct {
	task.Question
	display string
}

// form asks for the permission.
func (q *shownQuestion) form() *mcp.ElicitParams {
	return &mcp.ElicitParams{Mode: "form", Message: q.message(), RequestedSchema: json.RawMessage(permissionForm)}
}

func (q *shownQuestion) message() string {
	who := q.Agent
	if who == "" {
		who = "an agent"
	}
	text := fmt.Sprintf("%s (task %s) asks to use %s", field(excerpt.Exact(who)), q.Task, field(excerpt.Exact(q.Tool)))
	if q.Reason != "" {
		text += ": " + field(excerpt.Exact(q.Reason))
	}
	return text + "\n\n" + q.display
}

// waitOrQuestion returns when the wait is over, or with the first question that was not seen.
func (s *server) waitOrQuestion(
	ctx context.Context, wait control.WaitRequest, seen map[string]bool,
) (reply control.WaitReply, q *shownQuestion, err error) {
	both, end := context.WithCancel(ctx)
	defer end()
	found := make(chan *shownQuestion, 1)
	var watch sync.WaitGroup
	watch.Go(func() {
		if q := s.nextQuestion(both, wait.Refs, seen); q != nil {
			found <- q
			end()
		}
	})
	reply, err = s.wait(both, wait)
	end()
	watch.Wait()
	select {
	case q = <-found:
		if err == nil && !reply.TimedOut {
			return reply, nil, nil // over all the same
		}
		return reply, q, nil
	default:
		return reply, nil, err
	}
}

// nextQuestion waits for a permission that one of the tasks asks for and that can be
// shown whole; nil: ctx has ended, or the session does not tell.
func (s *server) nextQuestion(ctx context.Context, refs []string, seen map[string]bool) *shownQuestion {
	skip := map[string]bool{} // asked for by other tasks, or not to be shown whole
	for after := int64(-1); ; {
		open, err := ask(ctx, s.link, func(api control.API) (control.Approvals, error) {
			req := control.ApprovalsRequest{}
			if after >= 0 {
				req = control.ApprovalsRequest{After: after, Wait: approvalsWait}
			}
			return api.Approvals(ctx, req)
		})
		if err != nil {
			return nil
		}
		after = open.Version
		for _, q := range open.Questions {
			if seen[q.ID] || skip[q.ID] || q.Kind != "" && q.Kind != task.Permission {
				continue
			}
			skip[q.ID] = true
			if !s.below(ctx, q.Task, refs) {
				continue
			}
			if shown, ok := s.whole(ctx, q); ok {
				return shown
			}
		}
	}
}

// below reports whether the task, or one above it, is meant by the refs.
func (s *server) below(ctx context.Context, id task.ID, refs []string) bool {
	for range maxParents {
		if id == "" {
			return false
		}
		r, err := ask(ctx, s.link, func(api control.API) (task.Record, error) { return api.Get(ctx, string(id)) })
		if err != nil {
			return false
		}
		if slices.ContainsFunc(refs, func(ref string) bool { return means(ref, r) }) {
			return true
		}
		id = r.Parent
	}
	return false
}

// whole is the question with all of its input. What is too long for a form is left to
// `drover approvals`: nobody allows what was not shown.
func (s *server) whole(ctx context.Context, q task.Question) (*shownQuestion, bool) {
	one, err := ask(ctx, s.link, func(api control.API) (control.Approvals, error) {
		return api.Approvals(ctx, control.ApprovalsRequest{ID: q.ID})
	})
	if err != nil || len(one.Questions) != 1 {
		return nil, false
	}
	q = one.Questions[0]
	text := excerpt.Call(q.Input, q.Hidden)
	return &shownQuestion{q, text}, q.Hidden == 0 && len([]rune(text)) <= maxDisplay
}

// elicit asks the client's user by a request of ours. It ends early when the question
// is answered elsewhere.
func (s *server) elicit(
	ctx context.Context, req *mcp.CallToolRequest, q task.Question, params *mcp.ElicitParams,
) error {
	asking, end := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		s.untilAnswered(asking, q.ID)
		end()
	})
	res, err := req.Session.Elicit(asking, params)
	end()
	watch.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return nil // the question stays open; answers elsewhere count
	}
	return s.decide(ctx, q, res)
}

// untilAnswered returns when the question is not open any more, or ctx ends.
func (s *server) untilAnswered(ctx context.Context, id string) {
	for after := int64(-1); ; {
		open, err := ask(ctx, s.link, func(api control.API) (control.Approvals, error) {
			req := control.ApprovalsRequest{}
			if after >= 0 {
				req = control.ApprovalsRequest{After: after, Wait: approvalsWait}
			}
			return api.Approvals(ctx, req)
		})
		if err != nil {
			<-ctx.Done()
			return
		}
		if !slices.ContainsFunc(open.Questions, func(q task.Question) bool { return q.ID == id }) {
			return
		}
		after = open.Version
	}
}

// decide carries the answer of the client's user to the session. A form that was put
// away leaves the question open.
func (s *server) decide(ctx context.Context, q task.Question, res *mcp.ElicitResult) error {
	if res == nil || res.Action != "accept" && res.Action != "decline" {
		return nil
	}
	reply := task.Reply{Reason: "the user denied it"}
	if res.Action == "accept" {
		reply.Allow = res.Content["decision"] == "allow"
		if text, _ := res.Content["reason"].(string); text != "" {
			reply.Reason = excerpt.Line(text, 1000)
		}
	}
	if reply.Allow {
		reply.Reason = ""
	}
	_, err := ask(ctx, s.link, func(api control.API) (struct{}, error) {
		return struct{}{}, api.Decide(ctx, control.DecideRequest{
			ID: q.ID, Digest: q.Digest, Reply: reply, Actor: task.ByMCP,
			Detail: "by the user of an MCP client",
		})
	})
	var refused *control.Error
	if errors.As(err, &refused) && (refused.Code == control.Conflict || refused.Code == control.NotFound) {
		return nil // somebody was faster
	}
	return err
}
