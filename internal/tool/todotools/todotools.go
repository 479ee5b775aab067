package todotools

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/todo"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/strict"
)

// Hooks may refuse what happens to to-dos. An error is a refusal, and its text
// is for the model. They may take long, and be called by several goroutines.
type Hooks interface {
	// Created is called with a new to-do. If it refuses, the to-do is deleted.
	Created(ctx context.Context, it todo.Item) error
	// Completed is called with a to-do as it would be, before it is completed.
	Completed(ctx context.Context, it todo.Item) error
}

// Config is what the tools need. Store is required.
type Config struct {
	Store  *todo.Store
	Caller string // the name of the agent: it owns what it begins
	Main   bool   // the main agent, which is reminded of verification
	Hooks  Hooks  // nil: nothing is refused

	// Assign tells a new owner, who is not the caller, that a to-do is its own.
	// If it is nil nobody is told.
	Assign func(ctx context.Context, owner string, it todo.Item, by string) error
}

// New makes the tools TaskCreate, TaskGet, TaskList and TaskUpdate of one agent,
// in this order. They keep no state. Calls of TaskCreate and TaskUpdate run one
// after another, so that numbers follow the order of the calls.
func New(c Config) []agent.Tool {
	return []agent.Tool{
		&tool{name: "TaskCreate", text: createText, schema: createSchema, call: c.create},
		&tool{name: "TaskGet", text: getText, schema: getSchema, call: c.get, reads: true},
		&tool{name: "TaskList", text: listText, schema: listSchema, call: c.list, reads: true},
		&tool{name: "TaskUpdate", text: updateText, schema: updateSchema, call: c.update},
	}
}

//go:embed taskcreate.md
var createText string

//go:embed taskget.md
var getText string

//go:embed tasklist.md
var listText string

//go:embed taskupdate.md
var updateText string

const (
	createSchema = `{"type":"object","properties":{` +
		`"subject":{"type":"string","description":"A short imperative title, on one line"},` +
		`"description":{"type":"string","description":"What must be done"},` +
		`"activeForm":{"type":"string","description":"The title in the -ing form, shown while it is in progress"},` +
		`"metadata":{"type":"object","description":"Anything else, by key"}` +
		`},"required":["subject","description"],"additionalProperties":false}`

	getSchema = `{"type":"object","properties":{` +
		`"taskId":{"type":"string","description":"Number of the to-do"}` +
		`},"required":["taskId"],"additionalProperties":false}`

	listSchema = `{"type":"object","properties":{},"additionalProperties":false}`

	updateSchema = `{"type":"object","properties":{` +
		`"taskId":{"type":"string","description":"Number of the to-do"},` +
		`"subject":{"type":"string","description":"A new title"},` +
		`"description":{"type":"string","description":"A new description"},` +
		`"activeForm":{"type":"string","description":"A new -ing form"},` +
		`"status":{"type":"string","enum":["pending","in_progress","completed","deleted"],"description":"The new status; deleted removes the to-do"},` +
		`"addBlocks":{"type":"array","items":{"type":"string"},"description":"Numbers of to-dos that wait for this one"},` +
		`"addBlockedBy":{"type":"array","items":{"type":"string"},"description":"Numbers of to-dos that this one waits for"},` +
		`"owner":{"type":"string","description":"Name of the agent that does it; empty: nobody"},` +
		`"metadata":{"type":"object","description":"Keys to set; null takes a key away"}` +
		`},"required":["taskId"],"additionalProperties":false}`
)

// tool is one of the four.
type tool struct {
	name, text, schema string
	reads              bool
	call               func(ctx context.Context, input json.RawMessage) (agent.Output, error)
}

func (t *tool) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: t.name, Description: t.text, InputSchema: json.RawMessage(t.schema)}
}
func (t *tool) Parallel() bool { return t.reads }
func (t *tool) ReadOnly() bool { return t.reads }

// Call answers what the model or a hook did wrong, and what the list refused,
// with a result. Only the end of the turn is an error.
func (t *tool) Call(ctx context.Context, c agent.Call) (agent.Output, error) {
	out, err := t.call(ctx, c.Input)
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return agent.Output{}, context.Cause(ctx)
	}
	out.IsError = true
	out.Text, _ = excerpt.Tail(t.name+": "+excerpt.Plain(err.Error()), excerpt.DefaultLimit, "not kept")
	return out, nil
}

type createInput struct {
	Subject     string                     `json:"subject" strict:"filled"`
	Description string                     `json:"description" strict:"required"`
	ActiveForm  string                     `json:"activeForm"`
	Metadata    map[string]json.RawMessage `json:"metadata"`
}

// Created is the structured result of TaskCreate.
type Created struct {
	Task CreatedItem `json:"task"`
}

// CreatedItem is the to-do of [Created].
type CreatedItem struct {
	ID          todo.ID `json:"id"`
	Subject     string  `json:"subject"`
	Description string  `json:"description"`
}

func (c Config) create(ctx context.Context, input json.RawMessage) (agent.Output, error) {
	in, err := strict.Decode[createInput](input)
	if err != nil {
		return agent.Output{}, err
	}
	it, err := c.Store.Create(ctx, todo.Draft{Subject: in.Subject, Description: in.Description, ActiveForm: in.ActiveForm, Metadata: in.Metadata})
	if err != nil {
		return agent.Output{}, err
	}
	if c.Hooks != nil {
		if refused := c.Hooks.Created(ctx, it); refused != nil {
			// Nobody may find what was refused, also when the turn has ended.
			_, err := c.Store.Delete(context.WithoutCancel(ctx), it.ID)
			if errors.Is(err, todo.ErrNotFound) {
				err = nil
			}
			return agent.Output{}, errors.Join(refused, err)
		}
	}
	return agent.Output{
		Text:       fmt.Sprintf("Created to-do %s: %s", it.ID, excerpt.Line(it.Subject, todo.MaxLine)),
		Structured: Created{CreatedItem{it.ID, it.Subject, it.Description}},
	}, nil
}

type getInput struct {
	TaskID string `json:"taskId" strict:"filled"`
}

// Got is the structured result of TaskGet. Task is null if there is none.
type Got struct {
	Task *GotItem `json:"task"`
}

// GotItem is the to-do of [Got].
type GotItem struct {
	ID          todo.ID     `json:"id"`
	Subject     string      `json:"subject"`
	Description string      `json:"description"`
	Status      todo.Status `json:"status"`
	Blocks      []todo.ID   `json:"blocks"`
	BlockedBy   []todo.ID   `json:"blockedBy"`
}

func (c Config) get(ctx context.Context, input json.RawMessage) (agent.Output, error) {
	in, err := strict.Decode[getInput](input)
	if err != nil {
		return agent.Output{}, err
	}
	id, err := parse("taskId", in.TaskID)
	if err != nil {
		return agent.Output{}, err
	}
	l, err := c.Store.List(ctx)
	if err != nil {
		return agent.Output{}, err
	}
	it, ok := l.Get(id)
	if !ok {
		return agent.Output{Text: fmt.Sprintf("There is no to-do %s.%s", id, problems(l)), Structured: Got{}}, nil
	}
	got := &GotItem{it.ID, it.Subject, it.Description, it.Status, l.Blocks(id), it.BlockedBy}
	return agent.Output{Text: whole(l, it, got.Blocks), Structured: Got{got}}, nil
}

// Listed is the structured result of TaskList.
type Listed struct {
	Tasks []ListedItem `json:"tasks"`
}

// ListedItem is one to-do of [Listed].
type ListedItem struct {
	ID        todo.ID     `json:"id"`
	Subject   string      `json:"subject"`
	Status    todo.Status `json:"status"`
	Owner     string      `json:"owner,omitempty"`
	BlockedBy []todo.ID   `json:"blockedBy"` // what is not completed
}

func (c Config) list(ctx context.Context, input json.RawMessage) (agent.Output, error) {
	if _, err := strict.Decode[struct{}](input); err != nil {
		return agent.Output{}, err
	}
	l, err := c.Store.List(ctx)
	if err != nil {
		return agent.Output{}, err
	}
	shown, hidden := page(l.Items)
	out := Listed{Tasks: make([]ListedItem, len(shown))}
	var b strings.Builder
	for i, it := range shown {
		out.Tasks[i] = ListedItem{it.ID, it.Subject, it.Status, it.Owner, l.Waits(it)}
		b.WriteString(line(it, out.Tasks[i].BlockedBy) + "\n")
	}
	if len(shown) == 0 {
		b.WriteString("The list has no to-dos.\n")
	}
	if hidden > 0 {
		fmt.Fprintf(&b, "%d more are not shown; TaskGet shows any.\n", hidden)
	}
	return agent.Output{Text: strings.TrimSuffix(b.String(), "\n") + problems(l), Structured: out}, nil
}

func parse(field, text string) (todo.ID, error) {
	id, err := todo.ParseID(text)
	if err != nil {
		return 0, fmt.Errorf("field %q: %w", field, err)
	}
	return id, nil
}
