package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/mcpserver/mcpwire"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

const (
	maxText      = excerpt.DefaultLimit // characters of output in one answer
	maxListed    = 200                  // tasks in one listing
	defaultLines = 200                  // of output; the schema says so too
	defaultWait  = 45                   // seconds, below the 60 s of most clients; the schema says so too
	stopPatience = 15 * time.Second     // for the stop of a cancelled call
)

type runInput struct {
	Command        string   `json:"command"`
	Args           []string `json:"args"`
	Cwd            string   `json:"cwd"`
	Name           string   `json:"name"`
	TimeoutSeconds float64  `json:"timeout_seconds"`
	Background     *bool    `json:"background"`
	WaitSeconds    float64  `json:"wait_seconds"`
	Keep           bool     `json:"keep"`
}

type agentInput struct {
	AgentType  string `json:"agent_type"`
	Prompt     string `json:"prompt"`
	Cwd        string `json:"cwd"`
	Model      string `json:"model"`
	MaxTurns   int    `json:"max_turns"`
	Name       string `json:"name"`
	Background *bool  `json:"background"`
	Keep       bool   `json:"keep"`
}

// started is the answer of the tools that start a task.
type started struct {
	Task     taskView `json:"task"`
	TimedOut bool     `json:"timed_out,omitempty" jsonschema:"the time was up before the task ended; the task keeps running"`
	Output   string   `json:"output,omitempty" jsonschema:"the end of the output, or the agent's answer, of an ended task"`
}

func (s *server) run(ctx context.Context, req *mcp.CallToolRequest, in runInput) (string, started, error) {
	if (in.Command == "") == (len(in.Args) == 0) {
		return "", started{}, errors.New("give either command or args")
	}
	start := control.StartRequest{
		Name: in.Name, Timeout: seconds(in.TimeoutSeconds), Keep: in.Keep,
		Shell: &control.ShellRequest{Line: in.Command, Args: in.Args},
		Env:   s.cfg.Env, Cwd: s.folder(in.Cwd),
	}
	foreground := in.Background != nil && !*in.Background
	return s.start(ctx, req, start, foreground, seconds(in.WaitSeconds))
}

// folder returns the folder of a client's cwd.
func (s *server) folder(cwd string) string {
	if filepath.IsAbs(cwd) {
		return filepath.Clean(cwd)
	}
	return filepath.Join(s.cfg.Cwd, cwd)
}

func (s *server) agent(ctx context.Context, req *mcp.CallToolRequest, in agentInput) (string, started, error) {
	if strings.TrimSpace(in.Prompt) == "" {
		return "", started{}, errors.New("the prompt is empty")
	}
	if in.AgentType == "" {
		in.AgentType = "general-purpose"
	}
	start := control.StartRequest{
		Name: in.Name, Keep: in.Keep, Env: s.cfg.Env, Cwd: s.folder(in.Cwd),
		Agent: &control.AgentRequest{Type: in.AgentType, Prompt: in.Prompt, Model: in.Model, MaxTurns: in.MaxTurns},
	}
	return s.start(ctx, req, start, in.Background != nil && !*in.Background, 0)
}

// start starts one task and waits for its end: without limit in the foreground, otherwise for the given time.
func (s *server) start(
	ctx context.Context, req *mcp.CallToolRequest, start control.StartRequest, foreground bool, wait time.Duration,
) (string, started, error) {
	keep := start.Keep
	call, again, err := s.resume(ctx, req)
	if err != nil {
		return "", started{}, err
	}
	if again {
		rec, err := s.link.Record(ctx, string(call.task))
		if err != nil {
			return "", started{}, err
		}
		return s.finish(ctx, req, rec, call, foreground, wait, keep)
	}
	start.Keep = keep && start.Shell != nil // an agent ends with its host
	start.ByModel = true                    // the client has approved the call, but the user's bans hold
	if wish := mcpwire.WishOf(ctx); wish != nil && (wish.Must || foreground) {
		return s.startHeld(ctx, start, wish)
	}
	if !keep {
		start.Lease = s.lease
	}
	rec, err := s.startOne(ctx, start)
	if err != nil {
		return "", started{}, err
	}
	if !foreground && wait == 0 {
		return "started " + line(rec), started{Task: brief(rec)}, nil
	}
	call.task = rec.ID
	return s.finish(ctx, req, rec, call, foreground, wait, keep)
}

// startOne sends a start once, since a second one could run the command twice.
func (s *server) startOne(ctx context.Context, start control.StartRequest) (task.Record, error) {
	api, err := s.link.Reach(ctx)
	if err != nil {
		return task.Record{}, err
	}
	list, err := api.Start(ctx, []control.StartRequest{start})
	if err != nil {
		return task.Record{}, err
	}
	if len(list) != 1 || (list[0].Task == nil && list[0].Error == nil) {
		return task.Record{}, errors.New("the session did not report the started task")
	}
	if list[0].Error != nil {
		return task.Record{}, list[0].Error
	}
	return *list[0].Task, nil
}

// finish waits for the end of a started task and reports it.
func (s *server) finish(
	ctx context.Context, req *mcp.CallToolRequest, rec task.Record, call asked, foreground bool, wait time.Duration,
	keep bool,
) (string, started, error) {
	id := string(rec.ID)
	stop := s.progress(ctx, req, []string{id})
	reply, err := s.attend(ctx, req, control.WaitRequest{Refs: []string{id}, Timeout: wait}, call)
	stop()
	switch {
	case ctx.Err() != nil && foreground:
		return "", started{}, s.takeBack(ctx, rec, keep)
	case err != nil:
		return "", started{}, err
	case len(reply.Tasks) > 0:
		rec = reply.Tasks[0]
	}
	if reply.TimedOut {
		out := started{Task: brief(rec), TimedOut: true}
		return "still running: " + line(rec) + "\nuse task_wait to wait longer", out, nil
	}
	return s.ended(ctx, rec)
}

// ended is the answer with an ended task.
func (s *server) ended(ctx context.Context, rec task.Record) (text string, out started, err error) {
	out.Task = brief(rec)
	if out.Output, err = s.answer(ctx, rec); err != nil {
		return "", started{}, err
	}
	text = line(rec)
	if out.Output != "" {
		text += "\n\n" + out.Output
	}
	return text, out, nil
}

// takeBack stops the task of a foreground call that was cancelled. A kept task continues if the client has left.
func (s *server) takeBack(ctx context.Context, rec task.Record, keep bool) error {
	why := context.Cause(ctx)
	if keep && (s.life.Err() != nil || !errors.Is(why, context.Canceled)) {
		return fmt.Errorf("the call ended, task %s keeps running: %w", rec.ID, why)
	}
	last, done := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer done()
	api, err := s.link.Get(last)
	if err == nil {
		_, err = api.Stop(last, control.StopRequest{
			Refs: []string{string(rec.ID)}, Actor: task.ByClient, Detail: "the call that started it was cancelled",
		})
	}
	if err != nil {
		return fmt.Errorf("the call was cancelled, but stopping task %s: %w", rec.ID, err)
	}
	return fmt.Errorf("the call was cancelled and task %s was stopped", rec.ID)
}

// answer is the answer of an ended agent, or the end of the output of another task.
func (s *server) answer(ctx context.Context, rec task.Record) (string, error) {
	if rec.Kind.IsAgent() {
		a, err := control.Ask(ctx, s.link, func(api control.API) (control.Answer, error) {
			const most = utf8.UTFMax * maxText
			a, err := api.Result(ctx, control.ResultRequest{Ref: string(rec.ID)})
			if err == nil && a.Next < a.Size { // the end is shown
				a, err = api.Result(ctx, control.ResultRequest{Ref: string(rec.ID), Offset: max(0, a.Size-most), Max: most})
				a.Text = strings.ToValidUTF8(a.Text, "")
			}
			return a, err
		})
		if err != nil {
			return "", err
		}
		text, _ := excerpt.Tail(excerpt.Plain(a.Text), maxText, rec.OutputFile)
		return text, nil
	}
	chunk, err := s.read(ctx, control.OutputRequest{Ref: string(rec.ID), Tail: maxText, Max: maxText})
	if err != nil {
		return "", err
	}
	text := excerpt.Plain(string(chunk.Data))
	if chunk.Offset > 0 {
		return excerpt.End(text, maxText, rec.OutputFile), nil
	}
	text, _ = excerpt.Tail(text, maxText, rec.OutputFile)
	return text, nil
}

type listInput struct {
	All bool `json:"all"`
}

type listed struct {
	Tasks []taskView `json:"tasks"`
	More  bool       `json:"more" jsonschema:"older tasks are not listed"`
}

func (s *server) list(ctx context.Context, _ *mcp.CallToolRequest, in listInput) (string, listed, error) {
	page, err := control.Ask(ctx, s.link, func(api control.API) (control.Page, error) {
		return api.List(ctx, control.ListRequest{All: in.All, Limit: maxListed})
	})
	if err != nil {
		return "", listed{}, err
	}
	text := lines(page.Tasks)
	if text == "" {
		text = "No tasks."
	}
	return text, listed{Tasks: views(page.Tasks, view), More: page.Next != 0}, nil
}

type outputInput struct {
	TaskID    string   `json:"task_id"`
	TaskIDs   []string `json:"task_ids"`
	Offset    *int64   `json:"offset"`
	TailLines int      `json:"tail_lines"`
	MaxBytes  int      `json:"max_bytes"`
}

type output struct {
	TaskID     string `json:"task_id"`
	Text       string `json:"text"`
	Offset     int64  `json:"offset" jsonschema:"of the first byte of text in the output"`
	NextOffset int64  `json:"next_offset" jsonschema:"the offset to continue at"`
	SizeBytes  int64  `json:"size_bytes" jsonschema:"of the whole output so far"`
	Ended      bool   `json:"ended" jsonschema:"the task has ended and this is the end of its output"`
}

func (s *server) output(ctx context.Context, _ *mcp.CallToolRequest, in outputInput) (string, output, error) {
	refs, err := named(in.TaskID, in.TaskIDs)
	if err != nil {
		return "", output{}, err
	}
	req := control.OutputRequest{Ref: refs[0], Tail: in.TailLines, Max: maxText}
	if in.MaxBytes > 0 {
		req.Max = min(in.MaxBytes, maxText)
	}
	switch {
	case in.Offset != nil && in.TailLines > 0:
		return "", output{}, errors.New("give either offset or tail_lines")
	case in.Offset != nil:
		req.Offset = *in.Offset
	case in.TailLines == 0:
		req.Tail = defaultLines
	}
	chunk, err := s.read(ctx, req)
	if err != nil {
		return "", output{}, err
	}
	// An incomplete character at the end is left for the next call.
	data := chunk.Data
	if n := len(data) - partial(data); n > 0 && chunk.Next < chunk.Size {
		chunk.Next -= int64(len(data) - n)
		data = data[:n]
	}
	text, _ := excerpt.Tail(excerpt.Plain(string(data)), maxText, "task_output with offset")
	out := output{TaskID: refs[0], Text: text, Offset: chunk.Offset, NextOffset: chunk.Next, SizeBytes: chunk.Size,
		Ended: chunk.Ended}
	if text == "" {
		text = "no output"
		if !chunk.Ended {
			text = "no output yet"
		}
	}
	return text, out, nil
}

func (s *server) read(ctx context.Context, req control.OutputRequest) (control.Chunk, error) {
	return control.Ask(ctx, s.link, func(api control.API) (control.Chunk, error) { return api.Output(ctx, req) })
}

// partial returns how many bytes at the end of b are an incomplete character.
func partial(b []byte) int {
	for n := 1; n <= min(len(b), utf8.UTFMax-1); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// named returns the tasks of either argument.
func named(id string, ids []string) ([]string, error) {
	switch {
	case (id == "") == (len(ids) == 0):
		return nil, errors.New("give either task_id or task_ids")
	case id != "":
		return []string{id}, nil
	}
	return ids, nil
}

type waitInput struct {
	TaskID         string   `json:"task_id"`
	TaskIDs        []string `json:"task_ids"`
	Any            bool     `json:"any"`
	TimeoutSeconds float64  `json:"timeout_seconds"`
}

type waited struct {
	Tasks    []taskView `json:"tasks"`
	TimedOut bool       `json:"timed_out" jsonschema:"the time was up first; the tasks keep running"`
}

func (s *server) await(ctx context.Context, req *mcp.CallToolRequest, in waitInput) (string, waited, error) {
	if in.TimeoutSeconds == 0 { // for the session it would mean no limit
		in.TimeoutSeconds = defaultWait
	}
	refs, err := named(in.TaskID, in.TaskIDs)
	if err != nil {
		return "", waited{}, err
	}
	call, _, err := s.resume(ctx, req)
	if err != nil {
		return "", waited{}, err
	}
	defer s.progress(ctx, req, refs)()
	reply, err := s.attend(ctx, req,
		control.WaitRequest{Refs: refs, Any: in.Any, Timeout: seconds(in.TimeoutSeconds)}, call)
	if err != nil {
		return "", waited{}, err
	}
	text := lines(reply.Tasks)
	if reply.TimedOut {
		text = "timed out\n" + text
	}
	return text, waited{Tasks: views(reply.Tasks, brief), TimedOut: reply.TimedOut}, nil
}

func (s *server) wait(ctx context.Context, req control.WaitRequest) (control.WaitReply, error) {
	return control.Ask(ctx, s.link, func(api control.API) (control.WaitReply, error) { return api.Wait(ctx, req) })
}

type stopInput struct {
	TaskID       string   `json:"task_id"`
	TaskIDs      []string `json:"task_ids"`
	GraceSeconds *float64 `json:"grace_seconds"`
}

func (s *server) stop(ctx context.Context, _ *mcp.CallToolRequest, in stopInput) (string, task.Receipt, error) {
	refs, err := named(in.TaskID, in.TaskIDs)
	if err != nil {
		return "", task.Receipt{}, err
	}
	req := control.StopRequest{Refs: refs, Actor: task.ByClient}
	if in.GraceSeconds != nil {
		grace := seconds(*in.GraceSeconds)
		req.Grace = &grace
	}
	r, err := s.link.Stop(ctx, req)
	if err != nil {
		return "", task.Receipt{}, err
	}
	r = shownReceipt(r)
	return receiptText(r), r, nil
}

// seconds is n as a duration. The schemas bound n.
func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// plainError is err in one line for a client.
func plainError(err error) error {
	var e *control.Error
	text := err.Error()
	if errors.As(err, &e) {
		// The fix in the error is for people at a terminal.
		text = e.Message
		if len(e.Matches) > 0 {
			text += ": " + strings.Join(e.Matches, ", ")
		}
	}
	return errors.New(excerpt.Line(text, 1000))
}
