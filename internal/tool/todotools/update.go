package todotools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/project/todo"
)

const (
	deleted = "deleted" // the word for an action, which no to-do ever has as its status

	// How often a completion is put to the hooks when others change the to-do
	// while they run.
	attempts = 3
)

type updateInput struct {
	TaskID       string                     `json:"taskId" jsonschema:"Number of the to-do" input:"filled"`
	Subject      *string                    `json:"subject,omitempty" jsonschema:"A new title"`
	Description  *string                    `json:"description,omitempty" jsonschema:"A new description"`
	ActiveForm   *string                    `json:"activeForm,omitempty" jsonschema:"A new -ing form"`
	Status       *string                    `json:"status,omitempty" jsonschema:"The new status; deleted removes the to-do" input:"enum=pending|in_progress|completed|deleted"`
	AddBlocks    []string                   `json:"addBlocks,omitempty" jsonschema:"Numbers of to-dos that wait for this one"`
	AddBlockedBy []string                   `json:"addBlockedBy,omitempty" jsonschema:"Numbers of to-dos that this one waits for"`
	Owner        *string                    `json:"owner,omitempty" jsonschema:"Name of the agent that does it; empty: nobody"`
	Metadata     map[string]json.RawMessage `json:"metadata,omitempty" jsonschema:"Keys to set; null removes a key"`
}

func (in updateInput) patch() (p todo.Patch, err error) {
	p = todo.Patch{
		Subject: in.Subject, Description: in.Description, ActiveForm: in.ActiveForm,
		Status: (*todo.Status)(in.Status), Owner: in.Owner, Metadata: in.Metadata,
	}
	if p.AddBlocks, err = parseAll("addBlocks", in.AddBlocks); err != nil {
		return p, err
	}
	p.AddBlockedBy, err = parseAll("addBlockedBy", in.AddBlockedBy)
	return p, err
}

func parseAll(field string, texts []string) ([]todo.ID, error) {
	var out []todo.ID
	for _, text := range texts {
		id, err := parse(field, text)
		if err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, nil
}

// Updated is the structured result of TaskUpdate.
type Updated struct {
	Success       bool          `json:"success"`
	TaskID        string        `json:"taskId"`
	UpdatedFields []string      `json:"updatedFields"`
	Error         string        `json:"error,omitempty"`
	StatusChange  *StatusChange `json:"statusChange,omitempty"`
}

// StatusChange says from which status to which. To may be "deleted".
type StatusChange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func (c Config) update(ctx context.Context, in updateInput) (agent.Output, error) {
	out, err := c.updateOne(ctx, in)
	if err != nil {
		out.Structured = Updated{TaskID: in.TaskID, UpdatedFields: []string{}, Error: err.Error()}
	}
	return out, err
}

func (c Config) updateOne(ctx context.Context, in updateInput) (agent.Output, error) {
	id, err := parse("taskId", in.TaskID)
	if err != nil {
		return agent.Output{}, err
	}
	p, err := in.patch()
	if err != nil {
		return agent.Output{}, err
	}
	if in.Status != nil && *in.Status == deleted {
		return c.remove(ctx, id)
	}
	p.By = c.Caller
	change, err := c.apply(ctx, id, p)
	if err != nil {
		return agent.Output{}, err
	}
	out := updated(change)
	out.Text += c.assign(ctx, change) + c.remind(ctx, change)
	return out, nil
}

func (c Config) remove(ctx context.Context, id todo.ID) (agent.Output, error) {
	was, err := c.Store.Delete(ctx, id)
	if err != nil {
		return agent.Output{}, err
	}
	return agent.Output{
		Text: fmt.Sprintf("Deleted to-do %s.", id),
		Structured: Updated{
			Success: true, TaskID: wire(id), UpdatedFields: []string{deleted},
			StatusChange: &StatusChange{string(was.Status), deleted},
		},
	}, nil
}

// apply asks the hooks before a completion, and applies it only to what they
// have seen.
func (c Config) apply(ctx context.Context, id todo.ID, p todo.Patch) (todo.Change, error) {
	if c.Hooks == nil || p.Status == nil || *p.Status != todo.Completed {
		return c.Store.Update(ctx, id, p)
	}
	for try := 1; ; try++ {
		revision, err := c.ask(ctx, id, p)
		if err != nil {
			return todo.Change{}, err
		}
		p.Revision = revision
		change, err := c.Store.Update(ctx, id, p)
		if !errors.Is(err, todo.ErrChanged) || try == attempts {
			return change, err
		}
	}
}

// ask returns the revision that the hooks have agreed to.
func (c Config) ask(ctx context.Context, id todo.ID, p todo.Patch) (int, error) {
	l, err := c.Store.List(ctx)
	if err != nil {
		return 0, err
	}
	change, err := l.Preview(id, p)
	if err != nil || change.Before.Status == todo.Completed {
		return change.Before.Revision, err
	}
	return change.Before.Revision, c.Hooks.Completed(ctx, change.After)
}

// assign informs a new owner. It returns a failure as text for the model, since the
// change has been made.
func (c Config) assign(ctx context.Context, change todo.Change) string {
	it := change.After
	if it.Owner == change.Before.Owner || it.Owner == "" || it.Owner == c.Caller || c.Assign == nil {
		return ""
	}
	if err := c.Assign(ctx, it.Owner, it, c.Caller); err != nil {
		return fmt.Sprintf("\n%s could not be told: %s", excerpt.Line(it.Owner, 80), excerpt.Line(err.Error(), 300))
	}
	return ""
}

// remind is the reminder of verification, for the main agent. It is left out if
// the list cannot be read now: the change has been made.
func (c Config) remind(ctx context.Context, change todo.Change) string {
	if !c.Main || change.After.Status != todo.Completed {
		return ""
	}
	l, err := c.Store.List(ctx)
	if err != nil {
		return ""
	}
	if note := todo.Nudge(change, l); note != "" {
		return "\n\n" + note
	}
	return ""
}

func updated(c todo.Change) agent.Output {
	names := strings.NewReplacer("active_form", "activeForm", "blocked_by", "blockedBy")
	result := Updated{Success: true, TaskID: wire(c.After.ID), UpdatedFields: []string{}}
	for _, f := range c.Fields {
		result.UpdatedFields = append(result.UpdatedFields, names.Replace(f))
	}
	text := fmt.Sprintf("Nothing of to-do %s was different.", c.After.ID)
	if len(c.Fields) > 0 {
		text = fmt.Sprintf("Changed to-do %s: %s.", c.After.ID, strings.Join(result.UpdatedFields, ", "))
	}
	if from, to := c.Before.Status, c.After.Status; from != to {
		result.StatusChange = &StatusChange{string(from), string(to)}
		text += fmt.Sprintf(" It was %s and is %s.", from, to)
	}
	if c.After.Owner != "" {
		text += " Its owner is " + excerpt.Line(c.After.Owner, 80) + "."
	}
	return agent.Output{Text: text, Structured: result}
}

func wire(id todo.ID) string { return strings.TrimPrefix(id.String(), "#") }
