package hook

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/spelling"
)

// printed is the output of a hook, taken apart.
type printed struct {
	replies []reply
	plain   string // the text outside of the replies
	bad     string // why a part that looks like a reply cannot be read
}

// read finds the replies in stdout, whatever surrounds them. Where plain text is for the
// model, a reply begins its line, so that an object in the middle of a text stays text.
func read(h hook, r result) printed {
	if r.long {
		return printed{bad: "it is too long"}
	}
	speaks := h.fact.is(speaks)
	all, whole := pieces(strings.TrimPrefix(excerpt.WithoutSequences(r.stdout), "\ufeff"), speaks)
	var out printed
	var plain, unread strings.Builder
	for _, p := range all {
		if !p.object {
			plain.WriteString(p.text)
			unread.WriteString(p.text)
			continue
		}
		said, known, bad := parse(p.text)
		if known {
			out.replies = append(out.replies, said)
		} else {
			plain.WriteString(p.text)
		}
		out.bad = cmp.Or(out.bad, bad)
	}
	out.plain = strings.TrimSpace(plain.String())
	if (!whole || !speaks) && replyLike(unread.String(), !whole) {
		out.bad = cmp.Or(out.bad, "it is not valid JSON")
	}
	return out
}

// piece is a part of an output: a JSON object, or the text up to the next.
type piece struct {
	text   string
	object bool
}

// pieces takes a text apart. lines: an object counts only at the start of a line. whole is
// false if a brace begins no valid object.
func pieces(text string, lines bool) (out []piece, whole bool) {
	whole = true
	budget := 4*len(text) + 64<<10 // bytes that are read, as braces without an end make this quadratic
	from, at, blank := 0, 0, true
	for budget > 0 {
		i := strings.IndexByte(text[at:], '{')
		if i < 0 {
			break
		}
		before := text[at : at+i]
		nl := strings.LastIndexByte(before, '\n')
		blank = (blank || nl >= 0) && strings.TrimSpace(before[nl+1:]) == ""
		at += i
		if lines && !blank {
			at++
			continue
		}
		var raw json.RawMessage
		d := json.NewDecoder(strings.NewReader(text[at:]))
		if err := d.Decode(&raw); err != nil {
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) {
				budget -= int(syntax.Offset)
			} else {
				budget -= len(text) - at
			}
			at, blank, whole = at+1, false, false
			continue
		}
		n := int(d.InputOffset())
		budget -= n
		out = append(out, piece{text[from:at], false}, piece{text[at : at+n], true})
		at += n
		from = at
	}
	return append(out, piece{text[from:], false}), whole && budget > 0
}

// parse reads an object. known: it has at least one key of a reply. bad says which part of it
// looks like a decision and is not read as one.
func parse(text string) (said reply, known bool, bad string) {
	var wrong *json.UnmarshalTypeError
	if err := json.Unmarshal([]byte(text), &said); errors.As(err, &wrong) { // the other fields were read
		return said, true, fmt.Sprintf("%s is a %s", wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:], wrong.Value)
	}
	var all map[string]any
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return reply{}, false, err.Error()
	}
	for key := range all {
		known = known || contents(key) || spelled(key, "continue", "stopReason", "suppressOutput", "async", "asyncTimeout",
			"interrupt", "terminalSequence", "hookEventName", "updatedPermissions", "decision", "behavior", "permissionDecision",
			"hookSpecificOutput")
	}
	if word, _ := said.word(); word == Nothing {
		bad = misplaced(all)
	}
	return said, known || len(all) == 0, bad
}

func spelled(key string, as ...string) bool {
	return slices.ContainsFunc(as, func(one string) bool { return strings.EqualFold(one, key) })
}

// contents reports whether the value of a key cannot be a decision, whatever words it has: the
// texts of a reply, and the parts of a payload that a hook may print unchanged.
func contents(key string) bool {
	return spelled(key, "reason", "permissionDecisionReason", "systemMessage", "message",
		"additionalContext", "updatedInput",
		"modifiedArgs", "updatedToolOutput", "updatedMCPToolOutput", "modifiedResult") ||
		spelled(key, "tool_input", "toolInput", "toolArgs", "tool_response", "toolResponse", "toolResult",
			"prompt", "stopReason")
}

// misplaced finds what looks like a decision in an object that has none: a key that is nearly
// right or in the wrong place, or a word of a decision under another key. It is empty for none.
func misplaced(v any) string {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			if bad := misplaced(one); bad != "" {
				return bad
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if contents(key) {
				continue
			}
			text, _ := v[key].(string)
			_, inner := v[key].(map[string]any)
			switch near := meant(key); {
			case near != "" && !inner && v[key] != nil && v[key] != "":
				return fmt.Sprintf("%q is not known here (write %s)", excerpt.Line(key, 60), near)
			case decision(text) != Nothing:
				return fmt.Sprintf("%q is not known here, and has the value %s (write permissionDecision)", excerpt.Line(key, 60), text)
			}
			if bad := misplaced(v[key]); bad != "" {
				return bad
			}
		}
	}
	return ""
}

// meant is the key of a decision that another word is near to.
func meant(word string) string {
	word = strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(word))
	for key, most := range map[string]int{"permissionDecision": 3, "hookSpecificOutput": 3, "decision": 1, "behavior": 1} {
		if spelling.Distance(word, strings.ToLower(key)) <= most {
			return key
		}
	}
	return ""
}

// replyLike reports whether a text that is not JSON was meant as a reply: it begins as an object
// does, or has something like the key of a decision before a colon. broken: it has a brace.
func replyLike(text string, broken bool) bool {
	begins := strings.TrimLeftFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
	if broken && strings.HasPrefix(begins, "{") {
		return true
	}
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ':' || r == '=' }) {
		part = strings.TrimRight(part, " \t\r\n\\\"'`")
		word := part[strings.LastIndexFunc(part, func(r rune) bool { return !letter(r) })+1:]
		if near := meant(word); near != "" && (broken || len(near) > len("decision")) {
			return true
		}
	}
	return false
}

func letter(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' || r == '-'
}
