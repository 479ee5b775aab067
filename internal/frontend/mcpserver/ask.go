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
	inlineQuestions = "2026-07-28" // the first revision with questions in the answer of a call
	questionKey     = "permission" // of the only question in such an answer
	maxAsked        = 1000         // questions sent and not answered
	approvalsWait   = 30 * time.Second
)

// permissionForm is the form for the client's user.
const permissionForm = `{"type":"object","required":["decision"],"properties":{` +
	`"decision":{"type":"string","title":"Decision","enum":["allow","deny"],"description":"Whether this one call may run."},` +
	`"reason":{"type":"string","title":"Reason","description":"For the agent, if you deny."}}}`

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

// asked is a question in the answer of a call.
type asked struct {
	task     task.ID // that the call has started, or empty
	question task.Question
	seen     map[string]bool // all questions sent for this call; the user may have dismissed some
}

// askedBook keeps questions until the client repeats the call. The client gets a random key only, so it can answer only
// questions that it was asked.
type askedBook struct {
	mu   sync.Mutex
	list map[string]asked
	keys []string // oldest first
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

// resume takes the answer in a repeated call; again is false for a first call.
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

// attend waits for tasks, and meanwhile asks the client's user the permission questions of their subtrees. The time of
// the user does not count as waiting time. call is the state of a repeated call.
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

// shownQuestion is a question with its input for people.
type shownQuestion struct {
	task.Question
	display string
}

// form is the form of the question.
func (q *shownQuestion) form() *mcp.ElicitParams {
	return &mcp.ElicitParams{Mode: "form", Message: q.message(), RequestedSchema: json.RawMessage(permissionForm)}
}

func (q *shownQuestion) message() string {
	who := q.Agent
	if who == "" {
		who = "an agent"
	}
	text := fmt.Sprintf("%s\n%s (task %s) asks", field(excerpt.Exact(q.Title(""))), field(excerpt.Exact(who)), q.Task)
	if q.Reason != "" {
		text += ": " + field(excerpt.Exact(q.Reason))
	}
	return text + "\n\n" + q.display
}

// waitOrQuestion returns when the wait is over, or with the first new question.
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
			return reply, nil, nil // the wait is over too
		}
		return reply, q, nil
	default:
		return reply, nil, err
	}
}

// approvals returns the open questions; after a first call, which has a negative number, when they differ from those
// with the number.
func (s *server) approvals(ctx context.Context, after int64) (control.Approvals, error) {
	req := control.ApprovalsRequest{}
	if after >= 0 {
		req = control.ApprovalsRequest{After: after, Wait: approvalsWait}
	}
	return control.Ask(ctx, s.link, func(api control.API) (control.Approvals, error) { return api.Approvals(ctx, req) })
}

// nextQuestion waits for a permission question of one of the tasks that can be shown completely; nil: ctx has ended, or
// the session does not answer.
func (s *server) nextQuestion(ctx context.Context, refs []string, seen map[string]bool) *shownQuestion {
	skip := map[string]bool{} // of other tasks, or too long to show
	for after := int64(-1); ; {
		open, err := s.approvals(ctx, after)
		if err != nil {
			return nil
		}
		after = open.Version
		for _, q := range open.Questions {
			if seen[q.ID] || skip[q.ID] {
				continue
			}
			skip[q.ID] = true
			if shown, ok := s.shown(ctx, q, refs); ok {
				return shown
			}
		}
	}
}

// shown returns a permission question of one of the tasks, if it can be shown completely. Longer ones are left to
// `drover approvals`: a user must not allow a call without seeing all of it.
func (s *server) shown(ctx context.Context, q task.Question, refs []string) (*shownQuestion, bool) {
	ours := func(r task.Record) bool { return meansAny(refs, r) }
	if q.Kind != "" && q.Kind != task.Permission || !s.link.Below(ctx, q.Task, ours) {
		return nil, false
	}
	api, err := s.link.Get(ctx)
	if err != nil {
		return nil, false
	}
	q, ok := control.WholeQuestion(ctx, api, q)
	text := excerpt.Call(q.Input, q.Hidden)
	return &shownQuestion{q, text}, ok && len([]rune(text)) <= maxDisplay
}

// elicit asks the client's user by a request. It ends early when the question is answered elsewhere.
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
		return nil // the question stays open for others
	}
	return s.decide(ctx, q, res)
}

// untilAnswered returns when the question is no longer open, or ctx ends.
func (s *server) untilAnswered(ctx context.Context, id string) {
	for after := int64(-1); ; {
		open, err := s.approvals(ctx, after)
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

// decide gives the answer of the client's user to the session. A dismissed form leaves the question open.
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
	return s.link.Decide(ctx, control.DecideRequest{
		ID: q.ID, Digest: q.Digest, Reply: reply, Actor: task.ByMCP, Detail: "by the user of an MCP client",
	})
}
