package task

import (
	"context"
	"fmt"
	"time"
)

// Bounds of the fields of a [Spec], in bytes.
const (
	MaxName        = 128
	MaxDescription = 4 << 10
	MaxCommand     = 1 << 20 // with its arguments
	MaxSpecPrompt  = 16 << 20
	MaxInput       = 24 << 20 // of a driver; it repeats the prompt
	MaxCheckpoint  = 4 << 20
	MaxWord        = 1 << 10 // of a model, a type, a mode, a key and the like
	MaxPath        = 4096    // the longest path that Linux takes
)

// SizeError says that a part of a [Spec] is longer than its limit, in bytes, and how to fix it.
type SizeError struct {
	What  string
	Bytes int
	Limit int
	Fix   string
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("the %s has %d bytes, more than the limit of %d (%s)", e.What, e.Bytes, e.Limit, e.Fix)
}

// Check refuses a field that is too long, with a [*SizeError].
func (s Spec) Check() error {
	for _, f := range [...]SizeError{
		{"name", len(s.Name), MaxName, "shorten it; a description may be longer"},
		{"description", len(s.Description), MaxDescription, "shorten it; it is for display only"},
		{"command", len(s.Command), MaxCommand, "write it to a file and run that"},
		{"prompt", len(s.Prompt), MaxSpecPrompt, "write it to a file and name the file in the prompt"},
		{"working folder", len(s.Cwd), MaxPath, "use a shorter path"},
		{"model", len(s.Model), MaxWord, "give the name of a model"},
		{"agent type", len(s.AgentType), MaxWord, "see `drover agents`"},
		{"permission mode", len(s.Mode), MaxWord, "give the name of a mode"},
		{"tool use ID", len(s.ToolUseID), MaxWord, "give a shorter one"},
		{"key", len(s.Key), MaxWord, "give a shorter one"},
		{"input", len(s.Input), MaxInput, "write it to a file and name the file"},
	} {
		if f.Bytes > f.Limit {
			return &f
		}
	}
	return nil
}

// The pause after the first attempt, which doubles with each, and the longest one.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// NextAttempt records that an attempt has failed with a result, and returns when the next one is to begin: 1 s later
// after the first, twice as long after each further one, at most 5 minutes. After an error the run has to end.
func NextAttempt(ctx context.Context, h Retrier, failed Result) error {
	pause := min(firstRetry<<len(h.Record().Attempts), lastRetry)
	now := time.Now().UTC()
	a := Attempt{EndTime: now, ExitCode: failed.ExitCode, Signal: failed.Signal, OutputBytes: h.Output().Size(),
		Next: now.Add(pause)}
	return h.Retry(ctx, a, func(ctx context.Context) error {
		r := h.Record()
		h.Progress(Progress{Message: fmt.Sprintf("attempt %d of %d at %s", len(r.Attempts)+1, r.Retries+1,
			a.Next.Local().Format(time.TimeOnly))})
		select {
		case <-time.After(pause):
			h.Progress(Progress{})
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// Budget limits the use of a task and its descendants. A zero field sets no limit.
type Budget struct {
	USD         float64 `json:"usd,omitempty"`
	Tokens      int64   `json:"tokens,omitempty"`       // read and written by models, cached ones included
	WallMS      int64   `json:"wall_ms,omitempty"`      // of one run, while it is neither paused nor waiting for a place
	OutputBytes int64   `json:"output_bytes,omitempty"` // in output files
}

// Spend is the use of tasks in all their runs.
type Spend struct {
	Tasks       int      `json:"tasks"`
	Tokens      int64    `json:"total_tokens"`
	CostUSD     *float64 `json:"cost_usd,omitempty"` // of the models with a known price; nil: none has one
	OutputBytes int64    `json:"output_bytes"`
}

// Add returns the sum of both.
func (s Spend) Add(o Spend) Spend {
	return Spend{
		Tasks:       s.Tasks + o.Tasks,
		Tokens:      s.Tokens + o.Tokens,
		CostUSD:     dollars(s.CostUSD, o.CostUSD),
		OutputBytes: s.OutputBytes + o.OutputBytes,
	}
}

// Spent is the use of the task without its descendants. The usage of a workflow
// is the sum of its steps, and is left out.
func (r Record) Spent() Spend {
	s := Spend{Tasks: 1, OutputBytes: r.OutputBytes}
	if r.Traits().Work == BySteps {
		return s
	}
	for _, u := range []*Usage{r.Earlier, r.Used()} {
		if u != nil {
			s = s.Add(Spend{Tokens: u.TotalTokens, CostUSD: u.CostUSD})
		}
	}
	return s
}

// Used is the use of the present run. For a run that has not ended, or that died with
// its host, it comes from the progress.
func (r Record) Used() *Usage {
	if r.Usage != nil || r.Progress == nil {
		return r.Usage
	}
	return &Usage{TotalTokens: r.Progress.TokenCount, CostUSD: r.Progress.CostUSD, ToolUses: r.Progress.ToolUseCount}
}

// And is the sum of two runs. nil is a run without use.
func (u *Usage) And(o *Usage) *Usage {
	if u == nil || o == nil {
		if u == nil {
			return o
		}
		return u
	}
	return &Usage{
		TotalTokens:  u.TotalTokens + o.TotalTokens,
		InputTokens:  u.InputTokens + o.InputTokens,
		OutputTokens: u.OutputTokens + o.OutputTokens,
		CacheRead:    u.CacheRead + o.CacheRead,
		CacheWrite:   u.CacheWrite + o.CacheWrite,
		ToolUses:     u.ToolUses + o.ToolUses,
		Turns:        u.Turns + o.Turns,
		DurationMS:   u.DurationMS + o.DurationMS,
		CostUSD:      dollars(u.CostUSD, o.CostUSD),

		TokensUnknown: u.TokensUnknown || o.TokensUnknown,
	}
}

func dollars(a, b *float64) *float64 {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	return new(*a + *b)
}
