// Package workflow runs workflows: the kind local_workflow.
//
// A run executes the graph of a [flow.Plan]: a step begins when the steps that it
// needs have ended, each attempt is a child task with its own key, and the first
// failure stops the steps in progress. The checkpoint holds the plan and the ended
// steps, so a further run continues after them, also after a crash. A step that is
// recorded as completed is not run again. Run returns when no step is pending.
//
// The [Steps] start each child. A step with external effects runs at least once: a
// host that dies during the step leaves them incomplete.
package workflow

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	flow "github.com/drover-dev/drover/internal/project/workflowfile"
	"github.com/drover-dev/drover/task"
)

// ReasonStep is why a workflow has failed of which a step has.
const ReasonStep task.Reason = "step"

// Input is the input of a run: a plan, or the wish to continue from the checkpoint of
// an earlier run.
type Input struct {
	Plan   *flow.Plan        `json:"plan,omitempty"`
	Params map[string]string `json:"params,omitempty"` // all of them; see [flow.Plan.Values]
	Cwd    string            `json:"cwd,omitempty"`    // absolute
	Resume bool              `json:"resume,omitempty"`
}

// Attempt is one try of a step, with all texts computed.
type Attempt struct {
	Workflow string // its name
	Step     flow.Step
	Key      string // of the child
	N        int    // from 1
	Cwd      string // absolute
	Vars     []string
	Text     string            // the prompt
	With     map[string]string // parameters of a nested workflow
	Resumed  bool              // an earlier run may have started it
}

// Input returns the input of a nested workflow.
func (a Attempt) Input() Input { return Input{Plan: a.Step.Workflow.Plan, Params: a.With, Cwd: a.Cwd} }

// Steps is the runtime of a workflow's steps, in addition to [task.Host]. Its methods
// may be called from several goroutines.
type Steps interface {
	// Start starts a try as a child of the task, in the foreground. If the task has a
	// child with the key already, that is returned as it is: only a new one is pending.
	Start(ctx context.Context, h task.Host, a Attempt) (task.Record, error)
	// Again gives an ended nested workflow a further run, which continues it.
	Again(ctx context.Context, h task.Host, id task.ID, a Attempt) (task.Record, error)
	// Stop ends a child and returns when it is gone.
	Stop(ctx context.Context, id task.ID, why string) error
	// Text is the output of a child that has ended, its end at least.
	Text(ctx context.Context, id task.ID) (string, error)
	// Barred reports whether a start was refused because the task, or the host, is
	// about to end.
	Barred(err error) bool
	// Patience is how long an approval without a time limit waits; 0: it cannot be
	// answered, and is denied.
	Patience() time.Duration
}

// Driver runs workflows. It serves many tasks at the same time.
type Driver struct{ steps Steps }

// New makes a driver.
func New(s Steps) *Driver { return &Driver{s} }

// Kind is [task.LocalWorkflow].
func (d *Driver) Kind() task.Kind { return task.LocalWorkflow }

// Check refuses input that is not an [Input], or has a plan that cannot be run.
func (d *Driver) Check(input json.RawMessage) error {
	in, err := decode(input)
	switch {
	case err != nil:
		return err
	case in.Resume && in.Plan == nil:
		return nil
	case in.Plan == nil || in.Resume:
		return errors.New("read workflow: give a plan, or the wish to resume")
	case !filepath.IsAbs(in.Cwd):
		return fmt.Errorf("read workflow: the working folder %.200q is not absolute", in.Cwd)
	}
	if err := in.Plan.Sound(); err != nil {
		return fmt.Errorf("read workflow: %w", err)
	}
	if _, err := in.Plan.Values(in.Params); err != nil {
		return fmt.Errorf("read workflow: %w", err)
	}
	return nil
}

func decode(raw json.RawMessage) (in Input, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return Input{}, fmt.Errorf("read workflow: %w", err)
	}
	return in, nil
}

// version is the version of the checkpoint.
const version = 1

// saved is the checkpoint.
type saved struct {
	V      int               `json:"v"`
	Packed []byte            `json:"plan"` // see pack
	Plan   *flow.Plan        `json:"-"`
	Params map[string]string `json:"params,omitempty"`
	Cwd    string            `json:"cwd"`
	Done   []done            `json:"done,omitempty"`
}

// done is a step that has ended. Its output stays with its task.
type done struct {
	ID      string          `json:"id"`
	Status  task.StepStatus `json:"status"`
	Task    task.ID         `json:"task_id,omitempty"`
	Attempt int             `json:"attempt,omitempty"`
	Exit    string          `json:"exit_code,omitempty"`
	Tree    string          `json:"worktree,omitempty"` // path of the checkout that an isolated agent has left
	Text    string          `json:"text,omitempty"`     // of an approval
	Error   string          `json:"error,omitempty"`    // one line
	Start   time.Time       `json:"start_time,omitzero"`
	End     time.Time       `json:"end_time,omitzero"`
}

// Saved is the plan that a checkpoint holds, for who wants to go on with it.
func Saved(checkpoint []byte) (*flow.Plan, map[string]string, string, error) {
	s, err := read(checkpoint)
	return s.Plan, s.Params, s.Cwd, err
}

func read(checkpoint []byte) (s saved, err error) {
	if len(checkpoint) == 0 {
		return s, fmt.Errorf("no step of the workflow was begun: %w", task.ErrLost)
	}
	if err := json.Unmarshal(checkpoint, &s); err != nil {
		return s, fmt.Errorf("read the checkpoint of the workflow: %w: %w", task.ErrLost, err)
	}
	if s.V != version {
		return s, fmt.Errorf("the checkpoint of the workflow has version %d, not %d: %w", s.V, version, task.ErrLost)
	}
	if s.Plan, err = unpack(s.Packed); err != nil {
		return s, fmt.Errorf("the plan in the checkpoint of the workflow: %w: %w", task.ErrLost, err)
	}
	if err := s.Plan.Sound(); err != nil {
		return s, fmt.Errorf("the checkpoint of the workflow: %w: %w", task.ErrLost, err)
	}
	return s, nil
}

// maxPlan is the largest plan in bytes, as JSON with all its names, that is unpacked.
const maxPlan = 16 << 20

// pack makes a plan small: every event of its workflow contains it.
func pack(p *flow.Plan) ([]byte, error) {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	err := errors.Join(json.NewEncoder(w).Encode(p), w.Close())
	if err != nil {
		return nil, fmt.Errorf("pack the plan: %w", err)
	}
	return buf.Bytes(), nil
}

func unpack(packed []byte) (*flow.Plan, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	var p flow.Plan
	if err := json.NewDecoder(io.LimitReader(r, maxPlan)).Decode(&p); err != nil {
		return nil, err
	}
	return &p, nil
}

// Run runs a workflow to its end, or continues it.
func (d *Driver) Run(ctx context.Context, h task.Host) (task.Result, error) {
	if ctx.Err() != nil {
		return task.Result{}, context.Cause(ctx)
	}
	in, err := decode(h.Input())
	if err != nil {
		return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	s := saved{V: version, Plan: in.Plan, Params: in.Params, Cwd: in.Cwd}
	if in.Resume {
		if s, err = read(h.Record().Checkpoint); err != nil {
			return task.Result{}, err
		}
	}
	if s.Packed == nil {
		if s.Packed, err = pack(s.Plan); err != nil {
			return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: err}
		}
	}
	if s.Params, err = s.Plan.Values(s.Params); err != nil {
		return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	r := &run{steps: d.steps, h: h, saved: s, states: map[string]*state{}, events: make(chan event), resumed: in.Resume}
	r.recall()
	return r.run(ctx)
}

// recall takes in what earlier runs have done. What failed, and what depends on that,
// is done anew.
func (r *run) recall() {
	earlier := map[string]done{}
	for _, d := range r.saved.Done {
		earlier[d.ID] = d
	}
	r.saved.Done = nil
	for _, s := range r.saved.Plan.Steps {
		st := &state{Step: s, done: done{ID: s.ID, Status: task.StepPending}}
		if d, ok := earlier[s.ID]; ok {
			if st.tried = d.Attempt; d.Status == task.StepCompleted || d.Status == task.StepFailed && s.Continue {
				st.done = d
				r.saved.Done = append(r.saved.Done, d)
			}
		}
		r.states[s.ID] = st
		r.order = append(r.order, st)
	}
	r.after = r.saved.Plan.After()
}

// scope is what expressions of the workflow see now.
func (r *run) scope(ctx context.Context) flow.Scope {
	return flow.Scope{Params: r.saved.Params, Failed: r.failed != nil, Step: func(id, field string) (string, error) {
		st := r.states[id]
		switch field {
		case "status":
			return string(st.done.Status), nil
		case "exit_code":
			return st.done.Exit, nil
		case "worktree":
			return st.done.Tree, nil
		}
		return r.output(ctx, st)
	}}
}

// checkpoint makes the ended steps durable.
func (r *run) checkpoint(ctx context.Context) error {
	raw, err := json.Marshal(r.saved)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return r.h.Checkpoint(ctx, raw)
}

// attempt computes the texts of a step.
func (r *run) attempt(ctx context.Context, s flow.Step) (Attempt, error) {
	scope := r.scope(ctx)
	a := Attempt{Workflow: r.saved.Plan.Name, Step: s, Resumed: r.resumed}
	if a.Cwd = s.Cwd; !filepath.IsAbs(s.Cwd) {
		a.Cwd = filepath.Join(r.saved.Cwd, s.Cwd)
	}
	var err error
	switch {
	case s.Shell != "":
		a.Vars, err = r.saved.Plan.Vars(s, scope)
	case s.Agent != nil:
		a.Text, err = flow.Fill(s.Agent.Prompt, scope)
	case s.Approval != "":
		a.Text, err = flow.Fill(s.Approval, scope)
	default:
		given := map[string]string{}
		for _, v := range s.Workflow.With {
			if given[v.Name], err = flow.Fill(v.Text, scope); err != nil {
				return a, fmt.Errorf("with.%s: %w", v.Name, err)
			}
		}
		a.With, err = s.Workflow.Plan.Values(given)
	}
	return a, err
}

// outputs is the final text: the outputs that the plan declares, as a JSON object,
// or how each step has ended.
func (r *run) outputs(ctx context.Context) (string, error) {
	if len(r.saved.Plan.Outputs) == 0 || r.failed != nil {
		return r.table(), nil
	}
	values, size := map[string]string{}, 0
	for _, o := range r.saved.Plan.Outputs {
		v, err := flow.Fill(o.Text, r.scope(ctx))
		if err != nil {
			return "", fmt.Errorf("outputs.%s: %w", o.Name, err)
		}
		if values[o.Name], size = v, size+len(v); size > flow.MaxText {
			return "", fmt.Errorf("outputs: they have more than %d bytes (pass large values by a file)", flow.MaxText)
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(values); err != nil {
		return "", fmt.Errorf("outputs: %w", err)
	}
	return b.String(), nil
}

// table says how each step has ended.
func (r *run) table() string {
	var b bytes.Buffer
	for _, st := range r.order {
		fmt.Fprintf(&b, "%s: %s\n", st.ID, describe(st.done))
	}
	return b.String()
}

func describe(d done) string {
	if d.Error != "" {
		return string(d.Status) + ": " + d.Error
	}
	return string(d.Status)
}

// running names the steps that are at work, in the order of the file.
func (r *run) running() []string {
	var ids []string
	for _, st := range r.order {
		if st.done.Status == task.StepRunning {
			ids = append(ids, st.ID)
		}
	}
	return ids
}
