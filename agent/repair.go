package agent

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
)

const (
	lostCall     = "the host ended before this call's result was recorded; it may or may not have run"
	emptyAnswer  = "(empty answer)"
	toolNameRule = "letters, digits, - and _, at most 128"
)

// inName reports whether a name may have the character.
func inName(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

// goodName holds for IDs of calls too.
func goodName(s string) bool {
	return s != "" && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool { return !inName(r) })
}

// repair makes a history valid for a model: every call of an assistant message
// gets exactly one result in the message that follows, results without a call
// go, and IDs are unique. A call whose result is missing gets one that says
// so; it is not run again. Added holds the messages that are in repaired and
// were not in history. A valid history is returned as it is. ids are those of
// all calls.
func repair(history []Message) (repaired, added []Message, ids map[string]struct{}, err error) {
	ids = map[string]struct{}{}
	put := func(m Message, isNew bool) {
		repaired = append(repaired, m)
		if isNew {
			added = append(added, m)
		}
	}
	var owed []Block // the results that the next message must begin with
	var was []string // the IDs of those calls before they were made unique
	pay := func() {  // when no user message follows to hold them
		if len(owed) > 0 {
			put(NewMessage(User, owed...), true)
			owed, was = nil, nil
		}
	}
	for i, m := range history {
		if m.raw == nil {
			return nil, nil, nil, fmt.Errorf("repair history: message %d is empty", i)
		}
		if m.role == Assistant {
			pay()
		}
		if m.plain && len(owed) == 0 {
			put(m, false)
			continue
		}
		blocks, err := outline(m)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("repair history: message %d: %w", i, err)
		}
		if m.role == Assistant {
			changed := false
			for j := range blocks {
				b := &blocks[j]
				if b.Type != "tool_use" {
					continue
				}
				was = append(was, b.ID)
				if unique(&b.ID, ids) {
					changed = true
				}
				owed = append(owed, ToolResultBlock(b.ID, lostCall, true))
			}
			if changed {
				if m, err = renamed(m, blocks); err != nil {
					return nil, nil, nil, fmt.Errorf("repair history: message %d: %w", i, err)
				}
			}
			put(m, changed)
			continue
		}
		_, changed := settle(blocks, owed, was)
		if changed {
			if blocks, err = m.Blocks(); err != nil {
				return nil, nil, nil, fmt.Errorf("repair history: message %d: %w", i, err)
			}
			blocks, _ = settle(blocks, owed, was)
		}
		owed, was = nil, nil
		if changed && len(blocks) == 0 {
			continue
		}
		if changed {
			m = NewMessage(User, blocks...)
		}
		put(m, changed)
	}
	pay()
	return repaired, added, ids, nil
}

// unique replaces an ID that is missing, malformed or taken, and says if it did.
func unique(id *string, taken map[string]struct{}) bool {
	_, dup := taken[*id]
	changed := dup || !goodName(*id)
	if changed {
		*id = "toolu_" + uuid.NewString()
	}
	taken[*id] = struct{}{}
	return changed
}

// renamed is the message with the IDs of its outline.
func renamed(m Message, outline []Block) (Message, error) {
	blocks, err := m.Blocks()
	if err != nil {
		return m, err
	}
	for i := range blocks {
		blocks[i].ID = outline[i].ID
	}
	return NewMessage(m.role, blocks...), nil
}

// settle makes a user message answer the calls before it: results first, one a
// call, in the order of the calls, then everything that is no result.
func settle(blocks, owed []Block, was []string) (settled []Block, changed bool) {
	have := map[string][]Block{}
	var rest []Block
	for _, b := range blocks {
		if b.Type == "tool_result" {
			have[b.ToolUseID] = append(have[b.ToolUseID], b)
		} else {
			rest = append(rest, b)
		}
	}
	for i, missing := range owed {
		found := have[was[i]]
		if len(found) == 0 {
			settled = append(settled, missing)
			continue
		}
		have[was[i]] = found[1:]
		found[0].ToolUseID = missing.ToolUseID
		settled = append(settled, found[0])
	}
	settled = append(settled, rest...)
	if len(settled) != len(blocks) {
		return settled, true
	}
	for i := range blocks {
		if settled[i].Type != blocks[i].Type || settled[i].ToolUseID != blocks[i].ToolUseID {
			return settled, true
		}
	}
	return settled, false
}
