package task

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
