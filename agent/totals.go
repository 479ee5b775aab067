package agent

// Totals is what a conversation has used so far.
type Totals struct {
	Turns    int `json:"turns"`     // replies of the model
	ToolUses int `json:"tool_uses"` // calls in those replies
	// Context is the tokens that the latest request held, cache included. After
	// a compaction it is the tokens of the summary, until the next reply.
	Context int64 `json:"context"`
	Usage   Usage `json:"usage"` // summed over all replies and summaries
}

// Tokens is the one figure that stands for the size of the work: the latest
// input, since every request holds the ones before it, and all output.
func (t Totals) Tokens() int64 { return t.Context + t.Usage.OutputTokens }

// add counts a reply. A reply that reports no input leaves Context as it was.
func (t *Totals) add(u Usage, toolUses int) {
	t.Turns++
	t.ToolUses += toolUses
	t.Usage.add(u)
	if c := u.context(); c > 0 {
		t.Context = c
	}
}

// count takes a record in. A summary that takes the place of the conversation
// counts by its cost, and a record aside by nothing else.
func (t *Totals) count(r Record) {
	switch {
	case r.Usage == nil:
	case r.Boundary != nil:
		t.Usage.add(*r.Usage)
		t.Context = r.Usage.OutputTokens
	case r.Aside:
		t.Usage.add(*r.Usage)
	default:
		t.add(*r.Usage, r.ToolUses)
	}
}

// join counts what came later.
func (t *Totals) join(later Totals) {
	t.Turns += later.Turns
	t.ToolUses += later.ToolUses
	t.Usage.add(later.Usage)
	if later.Context > 0 {
		t.Context = later.Context
	}
}

func (u Usage) context() int64 {
	return u.InputTokens + u.CacheReadTokens + u.CacheWriteTokens
}

func (u *Usage) add(v Usage) {
	u.InputTokens += v.InputTokens
	u.OutputTokens += v.OutputTokens
	u.CacheReadTokens += v.CacheReadTokens
	u.CacheWriteTokens += v.CacheWriteTokens
	u.HourWriteTokens += v.HourWriteTokens
	u.Estimated = u.Estimated || v.Estimated
}
