package agent

// Totals is what a conversation has used so far.
type Totals struct {
	Turns    int   `json:"turns"`     // replies of the model
	ToolUses int   `json:"tool_uses"` // calls in those replies
	Context  int64 `json:"context"`   // tokens the latest request held, cache included
	Usage    Usage `json:"usage"`     // summed over all replies
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

func (u Usage) context() int64 {
	return u.InputTokens + u.CacheReadTokens + u.CacheWriteTokens
}

func (u *Usage) add(v Usage) {
	u.InputTokens += v.InputTokens
	u.OutputTokens += v.OutputTokens
	u.CacheReadTokens += v.CacheReadTokens
	u.CacheWriteTokens += v.CacheWriteTokens
}
