package mcptask

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/task"
)

// toldSchema bounds the schema in the message to the owner of a task.
const toldSchema = 4 << 10

// agentWait is how long the agent that a task belongs to may take for an answer,
// where it alone can give one.
const agentWait = 10 * time.Minute

// QuestionTold is the kind of the message by which the owner of a task hears of a
// question.
const QuestionTold task.MessageKind = "question"

// errFilled ends the waiting for somebody outside: the agent has answered.
var errFilled = errors.New("the agent that owns the task has answered")

// forms are the questions of a task that are open, oldest first.
type forms struct {
	life context.Context // ends with the run
	end  context.CancelFunc

	mu   sync.Mutex
	open []*form // guarded by mu, like the next
	over bool    // no further question is asked
	keep bool    // open questions stay open, for the next host
}

// form is an open question. It is filled once.
type form struct {
	input  json.RawMessage // of the question
	filled context.CancelCauseFunc
	answer *mcpclient.TaskAnswer // guarded by forms.mu; nil: not by the agent
}

func (f *forms) oldest() *form {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.open) == 0 {
		return nil
	}
	return f.open[0]
}

// begin opens a question, and counts it in work. It reports false when the run
// ends.
func (f *forms) begin(one *form, work *sync.WaitGroup) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return false
	}
	f.open = append(f.open, one)
	work.Add(1)
	return true
}

// done closes a question, and returns what the agent has filled in.
func (f *forms) done(one *form) *mcpclient.TaskAnswer {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, x := range f.open {
		if x == one {
			f.open = append(f.open[:i:i], f.open[i+1:]...)
			break
		}
	}
	return one.answer
}

// detach leaves open questions to the next host.
func (f *forms) detach() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keep = true
}

// unanswered returns the reply to the server about an unanswered question.
func (f *forms) unanswered() mcpclient.TaskAction {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keep {
		return mcpclient.FormLeft
	}
	return mcpclient.FormIgnored
}

func (f *forms) close() {
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	f.end()
}

// fill answers a question for the agent. What does not fit leaves it open.
func (f *forms) fill(one *form, text string) error {
	answer := mcpclient.TaskAnswer{Action: mcpclient.FormAccepted, Values: json.RawMessage(strings.TrimSpace(text))}
	if strings.EqualFold(strings.TrimSpace(text), "decline") {
		answer = mcpclient.TaskAnswer{Action: mcpclient.FormDeclined}
	} else {
		question := task.Question{Kind: task.Form, Input: one.input}
		if err := question.Check(task.Reply{Allow: true, Input: answer.Values}); err != nil {
			return &task.SteerError{Why: fmt.Sprintf("the task asks a question: %v. Send a JSON object, or the word decline", err)}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if one.answer != nil {
		return &task.SteerError{Why: "the question has just been answered"}
	}
	one.answer = &answer
	one.filled(errFilled)
	return nil
}

// Form is the input of a question of a server.
func Form(server string, e mcpclient.Elicitation) task.FormInput {
	f := task.FormInput{Message: e.Message, Schema: e.Schema, Server: server}
	if e.URL != "" {
		f.Visit = &task.FormVisit{Message: e.Said, URL: e.URL, ID: e.ID}
	}
	return f
}

// ask puts a question of the server to whoever can answer: somebody outside, or
// the agent that the task belongs to. The first answer counts.
func (r *run) ask(ctx context.Context, q mcpclient.Elicitation) mcpclient.TaskAnswer {
	input, err := json.Marshal(Form(r.at.Server, q))
	if err != nil {
		r.warn("a question of the server cannot be read: %v", err)
		return mcpclient.TaskAnswer{Action: mcpclient.FormIgnored}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	one := &form{input: input, filled: cancel}
	if !r.forms.begin(one, &r.work) {
		return mcpclient.TaskAnswer{Action: r.forms.unanswered()}
	}
	defer r.work.Done()
	defer context.AfterFunc(r.forms.life, func() { cancel(context.Canceled) })()
	r.say("asks: %s", q.Message)
	wait := r.d.AskWait
	if wait <= 0 && (r.alone || r.h.Record().Owner == "") {
		r.forms.done(one)
		r.say("nobody is there to answer")
		return mcpclient.TaskAnswer{Action: mcpclient.FormIgnored}
	}
	wait = cmp.Or(max(wait, 0), agentWait)
	until := time.Now().Add(wait).UTC()
	if err := r.h.Tell(ctx, QuestionTold, r.told(q, until), task.Next); err != nil && ctx.Err() == nil {
		r.warn("the agent that the task belongs to was not told of the question: %v", err)
	}
	reply, err := r.h.Ask(
		ctx,
		task.Question{Kind: task.Form, Agent: AgentType, Tool: r.at.Tool, Input: input, Wait: wait,
			Reason: fmt.Sprintf("MCP server %s asks for it, to go on with %s", r.at.Server, r.at.Tool)},
	)
	if errors.Is(err, task.ErrClosing) {
		<-r.forms.life.Done() // until the run has decided what becomes of the task
	}
	answer := mcpclient.TaskAnswer{Action: r.forms.unanswered()}
	switch filled := r.forms.done(one); {
	case filled != nil:
		answer = *filled
	case err == nil && reply.Allow:
		answer = mcpclient.TaskAnswer{Action: mcpclient.FormAccepted, Values: reply.Input}
	case err == nil && reply.Dismissed:
		answer.Action = mcpclient.FormIgnored
	case err == nil:
		answer.Action = mcpclient.FormDeclined
	}
	became := map[mcpclient.TaskAction]string{
		mcpclient.FormAccepted: "answered",
		mcpclient.FormDeclined: "the answer was declined",
		mcpclient.FormIgnored:  "nobody gave an answer",
		mcpclient.FormLeft:     "the question stays open for the next host",
	}
	r.say("%s", became[answer.Action])
	return answer
}

// told is what the agent reads of a question.
func (r *run) told(q mcpclient.Elicitation, until time.Time) string {
	schema := string(q.Schema)
	if len(schema) > toldSchema {
		schema = strings.ToValidUTF8(schema[:toldSchema], "") + "…"
	}
	return strings.ToValidUTF8(
		fmt.Sprintf("Task %s waits for an answer. MCP server %s asks (these are its words, not those of the user):\n%s\n"+
			"Values that fit: %s\nIf you know the answer, send a JSON object to %s with SendMessage, or the word decline. "+
			"The user may answer too, by `drover approvals`. At %s the server is told that nobody answers.",
			r.id, r.at.Server, oneLine(q.Message), schema, r.id, until.Format(time.TimeOnly+" UTC")),
		"?",
	)
}
