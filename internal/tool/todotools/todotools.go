package todotools

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/internal/tool/toolkit"
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
	Caller string // the name of the agent, which owns the to-dos that it begins
	Main   bool   // the main agent, which is reminded of verification
	Hooks  Hooks  // nil: nothing is refused

	// Assign tells a new owner, who is not the caller, that a to-do is its own.
	// nil: the new owner gets no message.
	Assign func(ctx context.Context, owner string, it todo.Item, by string) error
}

// New makes the tools TaskCreate, TaskGet, TaskList and TaskUpdate of one agent,
// in this order. They keep no state. Calls of TaskCreate and TaskUpdate run one
// after another, so that numbers follow the order of the calls.
func New(c Config) []agent.Tool {
	return []agent.Tool{
		toolkit.New(toolkit.Tool[createInput]{Name: "TaskCreate", Description: createText, Call: answer(c.create)}),
		toolkit.New(toolkit.Tool[getInput]{
			Name: "TaskGet", Description: getText, Parallel: true, ReadOnly: true, Call: answer(c.get),
		}),
		toolkit.New(toolkit.Tool[struct{}]{
			Name: "TaskList", Description: listText, Parallel: true, ReadOnly: true, Call: answer(c.list),
		}),
		toolkit.New(toolkit.Tool[updateInput]{Name: "TaskUpdate", Description: updateText, Call: answer(c.update)}),
	}
}

// answer turns a refusal by a hook or the list into a result. Only the end of the
// turn is an error.
func answer[In any](
	do func(context.Context, In) (agent.Output, error),
) func(context.Context, agent.Call, In) (agent.Output, error) {
	return func(ctx context.Context, _ agent.Call, in In) (agent.Output, error) {
		out, err := do(ctx, in)
		return out, toolkit.RefuseIn(ctx, err)
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

type createInput struct {
	Subject     string                     `json:"subject" jsonschema:"A short imperative title, on one line" input:"filled"`
	Description string                     `json:"description" jsonschema:"What must be done"`
	ActiveForm  string                     `json:"activeForm,omitempty" jsonschema:"The title in the -ing form, shown while it is in progress"`
	Metadata    map[string]json.RawMessage `json:"metadata,omitempty" jsonschema:"Anything else, by key"`
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

func (c Config) create(ctx context.Context, in createInput) (agent.Output, error) {
	it, err := c.Store.Create(ctx, todo.Draft{
		Subject: in.Subject, Description: in.Description, ActiveForm: in.ActiveForm, Metadata: in.Metadata,
	})
	if err != nil {
		return agent.Output{}, err
	}
	if c.Hooks != nil {
		if refused := c.Hooks.Created(ctx, it); refused != nil {
			// A refused to-do must disappear, also when the turn has ended.
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
	TaskID string `json:"taskId" jsonschema:"Number of the to-do" input:"filled"`
}

// Got is the structured result of TaskGet. Task is null for an unknown to-do.
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

func (c Config) get(ctx context.Context, in getInput) (agent.Output, error) {
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
	BlockedBy []todo.ID   `json:"blockedBy"` // open to-dos only
}

func (c Config) list(ctx context.Context, _ struct{}) (agent.Output, error) {
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
