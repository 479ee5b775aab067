package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxParallel    = 16      // calls of one loop at a time
	maxOutputBytes = 1 << 20 // of one result

	interruptedCall = "interrupted while this call ran; it may have had effects"
	notRunCall      = "not run: the turn was interrupted first"
)

// toolbox finds tools by the names that models make of them.
type toolbox struct {
	specs  []ToolSpec // encoded once; the same bytes in every request; without those that are deferred
	names  []string   // sorted
	exact  map[string]Tool
	folded map[string]Tool // lower case; nil where two names fold together
	alias  map[string]Tool
}

func newToolbox(tools []Tool, deferred []string) (*toolbox, error) {
	b := &toolbox{exact: map[string]Tool{}, folded: map[string]Tool{}, alias: map[string]Tool{}}
	for _, t := range tools {
		s := t.Spec()
		if !goodName(s.Name) {
			return nil, fmt.Errorf("tool name %q: use %s", s.Name, toolNameRule)
		}
		if b.exact[s.Name] != nil {
			return nil, fmt.Errorf("tool %s is given twice", s.Name)
		}
		if !json.Valid(s.InputSchema) || bytes.TrimLeft(s.InputSchema, " \t\r\n")[0] != '{' {
			return nil, fmt.Errorf("tool %s: its input schema is not a JSON object", s.Name)
		}
		fold := strings.ToLower(s.Name)
		if _, taken := b.folded[fold]; taken {
			b.folded[fold] = nil
		} else {
			b.folded[fold] = t
		}
		b.exact[s.Name] = t
		b.names = append(b.names, s.Name)
		if !slices.Contains(deferred, s.Name) {
			b.specs = append(b.specs, s)
		}
	}
	slices.Sort(b.names)
	for _, t := range tools {
		a, ok := t.(Aliased)
		if !ok {
			continue
		}
		for _, name := range a.Aliases() {
			fold := strings.ToLower(name)
			if other := b.exact[name]; other != nil && other.Spec().Name != t.Spec().Name {
				return nil, fmt.Errorf("tool %s: its alias %s is the name of another tool", t.Spec().Name, name)
			}
			if other := b.alias[fold]; other != nil && other.Spec().Name != t.Spec().Name {
				return nil, fmt.Errorf("tool %s: its alias %s is one of tool %s too", t.Spec().Name, name, other.Spec().Name)
			}
			b.alias[fold] = t
		}
	}
	return b, nil
}

// find is nil for an unknown name.
func (b *toolbox) find(name string) Tool {
	if t := b.exact[name]; t != nil {
		return t
	}
	fold := strings.ToLower(name)
	if t := b.folded[fold]; t != nil {
		return t
	}
	return b.alias[fold]
}

// forward is the call that a call of a [Forwarder] stands for; other calls stand for themselves.
// Its refusal is not empty if there is no such call.
func (b *toolbox) forward(c Call) (to Call, refusal string) {
	f, ok := b.find(c.Name).(Forwarder)
	if !ok {
		return c, ""
	}
	name, in, err := f.Forward(c.Input)
	if err != nil {
		return c, err.Error()
	}
	tool := b.find(name)
	if tool == nil {
		return c, b.unknown(name)
	}
	if _, again := tool.(Forwarder); again {
		return c, "not run: " + name + " calls other tools, and not itself"
	}
	c.Name = tool.Spec().Name
	c.Input, refusal = checkInput(in)
	return c, refusal
}

func (b *toolbox) unknown(name string) string {
	have := "there are no tools"
	if len(b.names) > 0 {
		have = "the tools are " + strings.Join(b.names, ", ")
	}
	return fmt.Sprintf("there is no tool %q; %s", excerpt(name, 100), have)
}

// decided is what became of a call.
type decided struct {
	call pending
	out  Output
	took time.Duration // 0: it was not run
}

// runCalls decides every call and returns when nothing that it started is left
// running. end says that a tool ended the turn. err is a failure of the runtime.
func (t *turn) runCalls(ctx context.Context, calls []pending) (all []decided, end bool, err error) {
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // guards end and err
	all = make([]decided, len(calls))
	for i := 0; i < len(calls); {
		n := t.together(calls[i:])
		var group sync.WaitGroup
		slots := make(chan struct{}, maxParallel)
		for j := i; j < i+n; j++ {
			d := &all[j]
			d.call = calls[j]
			mu.Lock()
			ended := end
			mu.Unlock()
			tool, refusal := t.admit(run, d, ended)
			if tool == nil {
				d.out = refusal
				t.emit(Event{Kind: ToolDoneEvent, Call: d.call.Call, Output: d.out})
				continue
			}
			slots <- struct{}{} // freed by calls that are waited for in any case
			group.Go(func() {
				defer func() { <-slots }()
				start := time.Now()
				out, failure := t.call(run, tool, d.call.Call)
				took := time.Since(start)
				mu.Lock()
				defer mu.Unlock()
				d.out, d.took = out, took
				end = end || out.EndTurn && failure == nil
				if failure != nil && err == nil {
					err = fmt.Errorf("tool %s: %w", tool.Spec().Name, failure)
					cancel(err)
				}
			})
		}
		group.Wait()
		i += n
	}
	return all, end, err
}

// together is how many calls from the first on may run side by side.
func (t *turn) together(calls []pending) int {
	n := 0
	for _, c := range calls {
		if tool := t.tools.find(c.Name); tool != nil {
			if p, ok := tool.(Parallel); !ok || !p.Parallel() {
				break
			}
		}
		n++
	}
	return max(n, 1)
}

// admit returns the tool if the call may run, else what the model is told.
func (t *turn) admit(ctx context.Context, d *decided, ended bool) (Tool, Output) {
	if d.call.refused != "" {
		return nil, Refuse(d.call.refused)
	}
	tool := t.tools.find(d.call.Name)
	if tool == nil {
		return nil, Refuse(t.tools.unknown(d.call.Name))
	}
	if ended {
		return nil, Refuse("not run: an earlier call ended the turn")
	}
	if t.hold(ctx) != nil || ctx.Err() != nil {
		return nil, Refuse(notRunCall)
	}
	decision, err := t.check(ctx, d.call.Call)
	t.asides = append(t.asides, decision.Context)
	t.gateEnds = t.gateEnds || decision.EndTurn
	switch {
	case ctx.Err() != nil:
		return nil, Refuse(notRunCall)
	case err != nil:
		// A gate that cannot say yes has said no.
		decision = Decision{Reason: "permission could not be checked: " + err.Error()}
	case decision.Allow && decision.Input != nil:
		input, bad := checkInput(decision.Input)
		if bad != "" {
			decision = Decision{Reason: "the permission check gave an input that cannot be used"}
			break
		}
		d.call.Input = input
	}
	if decision.Allow {
		return tool, Output{}
	}
	if decision.Reason == "" {
		decision.Reason = "permission to use " + d.call.Name + " was denied"
	}
	t.res.Denials = append(t.res.Denials, Denial{
		ToolUseID: d.call.ID, Name: d.call.Name, Input: d.call.Input, Reason: decision.Reason, Suggest: decision.Suggest,
	})
	return nil, Refuse(decision.Reason)
}

func (t *turn) check(ctx context.Context, c Call) (d Decision, err error) {
	defer func() {
		if p := recover(); p != nil {
			d, err = Decision{}, fmt.Errorf("panic: %v", p)
		}
	}()
	return t.cfg.Port.Check(ctx, c, func() (Decision, error) {
		if t.cfg.Gate == nil {
			return Decision{Allow: true}, nil
		}
		return t.cfg.Gate.Check(ctx, c)
	})
}

// call runs one call that was admitted.
func (t *turn) call(ctx context.Context, tool Tool, c Call) (out Output, err error) {
	if t.hold(ctx) != nil { // whoever was asked about it may have taken long
		out = Refuse(notRunCall)
		t.emit(Event{Kind: ToolDoneEvent, Call: c, Output: out})
		return out, nil
	}
	t.emit(Event{Kind: ToolStartEvent, Call: c})
	start, took := time.Now(), time.Duration(0)
	out, err = t.cfg.Port.Run(ctx, tool.Spec().Name, c, func() (Output, error) {
		out, err := t.carryOut(ctx, tool, c)
		took = time.Since(start)
		return out, err
	}, func(out Output) Output { return t.called(ctx, c, out, took) })
	t.emit(Event{Kind: ToolDoneEvent, Call: c, Output: out, Duration: took})
	return out, err
}

// carryOut runs a tool.
func (t *turn) carryOut(ctx context.Context, tool Tool, c Call) (out Output, err error) {
	report, done := t.reporting(c)
	out, err = contain(func() (Output, error) { return tool.Call(context.WithValue(ctx, reportKey{}, report), c) })
	done()
	if err != nil {
		if ctx.Err() != nil {
			out, err = Refuse(interruptedCall), nil
		} else {
			out = Refuse("the call could not be carried out: " + err.Error())
		}
	}
	out.Text = bounded(out.Text)
	return out, err
}

// called returns a result as the hooks leave it.
func (t *turn) called(ctx context.Context, c Call, out Output, took time.Duration) Output {
	if t.cfg.Hooks == nil {
		return out
	}
	was := out
	t.guard("the hook behind a call", func() { out = t.cfg.Hooks.Called(ctx, c, was, took) })
	out.Text = bounded(out.Text)
	return out
}

type reportKey struct{}

// ReportProgress tells those who follow the conversation how far a call of a tool is, in a line. ctx
// is that of [Tool.Call]; where it is none, and after the call, nobody is told. Tools do not
// report more often than a person reads.
func ReportProgress(ctx context.Context, text string) {
	if report, ok := ctx.Value(reportKey{}).(func(string)); ok {
		report(text)
	}
}

// reporting tells of the progress of a call until done is called.
func (t *turn) reporting(c Call) (report func(text string), done func()) {
	var mu sync.Mutex // no event of a call comes after its end
	over := false
	report = func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if text = bounded(text); !over && text != "" {
			t.emit(Event{Kind: ToolProgressEvent, Call: c, Text: text})
		}
	}
	return report, func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
	}
}

// bounded is a text that may stand in a message.
func bounded(text string) string {
	return excerpt(strings.ToValidUTF8(text, "\uFFFD"), maxOutputBytes)
}

// guard runs what somebody outside has given. If it panics, the turn has a
// warning, and goes on as if it had not been asked.
func (t *turn) guard(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			t.warn(fmt.Sprintf("%s crashed: %v", what, p))
		}
	}()
	f()
}

// warn adds a warning to the result.
func (t *turn) warn(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.res.Warnings = append(t.res.Warnings, text)
}

// contain runs f on a goroutine of its own and waits for it: a tool may end its
// goroutine, by a panic or by runtime.Goexit, without hurting the turn.
func contain(f func() (Output, error)) (out Output, err error) {
	done := make(chan struct{})
	go func() { // waited for below
		defer close(done)
		finished := false
		defer func() {
			if p := recover(); p != nil {
				out, err = Refuse(fmt.Sprintf("the tool crashed: %v", p)), nil
			} else if !finished {
				out, err = Refuse("the tool crashed: it ended its goroutine"), nil
			}
		}()
		out, err = f()
		finished = true
	}()
	<-done
	return out, err
}

const (
	sameCallsHint = 5           // equal calls with equal results, in a row, of which the model is told
	maxSameCalls  = 50          // so many end the turn
	maxCircle     = 4           // calls in a repetition
	waitedCall    = time.Second // a call that took so long let time pass, as one that polls does
)

// circle notices calls that are repeated without effect: one call, or a few
// calls in turn. A call that waits for something is none of them, and what comes
// behind it is counted anew. The zero value is ready.
type circle struct {
	last [maxCircle]uint64 // the latest first
	n    int
	runs [maxCircle]int // how often in a row a call was the one so many before it
	hint bool           // the model is to be told
}

// add takes in a call with its result, and how long it took.
func (c *circle) add(seed maphash.Seed, d Done, took time.Duration) {
	if took >= waitedCall {
		*c = circle{hint: c.hint}
		return
	}
	var h maphash.Hash
	h.SetSeed(seed)
	for _, s := range []string{d.Call.Name, string(d.Call.Input), d.Output.Text} {
		_, _ = h.WriteString(s)
		_ = h.WriteByte(0)
	}
	sum := h.Sum64()
	for i := range c.last {
		if i < c.n && c.last[i] == sum {
			c.runs[i]++
		} else {
			c.runs[i] = 0
		}
	}
	copy(c.last[1:], c.last[:])
	c.last[0] = sum
	c.n++
	for i, run := range c.runs { // the shortest repetition is the one that is told
		if least := (i + 1) * (sameCallsHint - 1); run >= least {
			c.hint = c.hint || run == least
			break
		}
	}
}

// closed says whether the same has come too often.
func (c *circle) closed() bool {
	for i, run := range c.runs {
		if run >= (i+1)*(maxSameCalls-1) {
			return true
		}
	}
	return false
}

// reminder tells the model, once per row of repetitions; else it is empty.
func (c *circle) reminder() string {
	if !c.hint {
		return ""
	}
	c.hint = false
	return fmt.Sprintf("<system-reminder>\nThe same calls have given the same results %d times in a row. "+
		"If you wait for something, use a call that waits: TaskOutput with block, Monitor, or a command with sleep. "+
		"If not, try another way, or say what stops you. After %d times in a row the turn is ended.\n</system-reminder>",
		sameCallsHint, maxSameCalls)
}
