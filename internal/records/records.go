// Package records reads task records as they stand in logs and in answers.
//
// A long listing is little else than reading them. [Read] gives what
// [encoding/json] gives, and is several times as fast for what our encoder writes for
// most tasks. Whatever it does not know at sight, be it a newer field or a blank
// between two others, it leaves to [encoding/json], the whole record. It knows no
// file and checks no sum.
package records

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/drover-dev/drover/task"
)

// Read decodes one record, which replaces what was in to. What it returns keeps
// nothing of data.
func Read(data []byte, to *task.Record) error {
	*to = task.Record{}
	p := parser{rest: data}
	if p.record(to) && len(p.rest) == 0 {
		return nil
	}
	*to = task.Record{}
	return json.Unmarshal(data, to)
}

// parser reads compact JSON from the front of rest. Its methods return false for what
// is not known at sight; nothing that was read then counts.
type parser struct{ rest []byte }

func (p *parser) take(c byte) bool {
	if len(p.rest) == 0 || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *parser) word(w string) bool {
	if len(p.rest) < len(w) || string(p.rest[:len(w)]) != w {
		return false
	}
	p.rest = p.rest[len(w):]
	return true
}

// object reads members; member is called behind the colon of each.
func (p *parser) object(member func(key []byte) bool) bool {
	if !p.take('{') {
		return false
	}
	if p.take('}') {
		return true
	}
	for {
		key, ok := p.quoted()
		if !ok || bytes.IndexByte(key, '\\') >= 0 || !p.take(':') || !member(key[1:len(key)-1]) {
			return false
		}
		if !p.take(',') {
			return p.take('}')
		}
	}
}

// quoted reads a string and returns it as it stands, with its quotes.
func (p *parser) quoted() ([]byte, bool) {
	if len(p.rest) == 0 || p.rest[0] != '"' {
		return nil, false
	}
	for i := 1; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			s := p.rest[:i+1]
			p.rest = p.rest[i+1:]
			return s, true
		case c == '\\':
			i++
		case c < ' ':
			return nil, false
		}
	}
	return nil, false
}

func text[T ~string](p *parser, to *T) bool {
	s, ok := p.quoted()
	if !ok || !utf8.Valid(s) {
		return false
	}
	if bytes.IndexByte(s, '\\') >= 0 {
		var plain string
		ok = json.Unmarshal(s, &plain) == nil
		*to = T(plain)
		return ok
	}
	*to = T(s[1 : len(s)-1])
	return true
}

func (p *parser) flag(to *bool) bool {
	*to = p.word("true")
	return *to || p.word("false")
}

// digits are so few that no number of them is too large.
const digits = 18

func number[T int | int64 | uint64](p *parser, to *T) bool {
	i := 0
	minus := len(p.rest) > 0 && p.rest[0] == '-'
	if minus {
		i++
	}
	first := i
	for i < len(p.rest) && p.rest[i]-'0' <= 9 {
		i++
	}
	if n := i - first; n == 0 || n > digits || n > 1 && p.rest[first] == '0' {
		return false
	}
	if i < len(p.rest) && p.rest[i] != ',' && p.rest[i] != '}' {
		return false
	}
	n, err := strconv.ParseInt(string(p.rest[:i]), 10, 64)
	*to = T(n)
	p.rest = p.rest[i:]
	return err == nil && minus == (*to < 0) && int64(*to) == n
}

func (p *parser) time(to *time.Time) bool {
	s, ok := p.quoted()
	return ok && to.UnmarshalJSON(s) == nil
}

// maybe reads null, or what is not.
func maybe[T any](p *parser, to **T, read func(*T) bool) bool {
	if p.word("null") {
		*to = nil
		return true
	}
	if *to != nil { // a second time: the two would be mixed
		return false
	}
	*to = new(T)
	return read(*to)
}

// other reads a value of a known field that few tasks have.
func (p *parser) other(to any) bool {
	depth := 0
	for i := 0; i < len(p.rest); i++ {
		switch p.rest[i] {
		case '"':
			in := parser{rest: p.rest[i:]}
			s, ok := in.quoted()
			if !ok {
				return false
			}
			i += len(s) - 1
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			continue
		}
		if depth <= 0 {
			value := p.rest[:i+1]
			p.rest = p.rest[i+1:]
			return depth == 0 && json.Unmarshal(value, to) == nil
		}
	}
	return false
}

func (p *parser) cause(to *task.Cause) bool {
	return p.object(func(key []byte) bool {
		switch string(key) {
		case "actor":
			return text(p, &to.Actor)
		case "reason":
			return text(p, &to.Reason)
		case "signal":
			return text(p, &to.Signal)
		case "detail":
			return text(p, &to.Detail)
		}
		return false
	})
}

func (p *parser) process(to *task.Process) bool {
	return p.object(func(key []byte) bool {
		switch string(key) {
		case "pid":
			return number(p, &to.PID)
		case "start":
			return number(p, &to.Start)
		case "boot":
			return text(p, &to.Boot)
		}
		return false
	})
}

func (p *parser) record(r *task.Record) bool {
	return p.object(func(key []byte) bool {
		return p.usual(r, key) || p.rare(r, key)
	})
}

// A field that is in neither list is left to [encoding/json].

func (p *parser) usual(r *task.Record, key []byte) bool {
	switch string(key) {
	case "task_id":
		return text(p, &r.ID)
	case "run_id":
		return text(p, &r.Run)
	case "task_type":
		return text(p, &r.Kind)
	case "status":
		return text(p, &r.Status)
	case "idle":
		return p.flag(&r.Idle)
	case "awaiting_approval":
		return p.flag(&r.AwaitingApproval)
	case "paused":
		return p.flag(&r.Paused)
	case "backgrounded":
		return p.flag(&r.Backgrounded)
	case "notified":
		return p.flag(&r.Notified)
	case "name":
		return text(p, &r.Name)
	case "description":
		return text(p, &r.Description)
	case "session_id":
		return text(p, &r.Session)
	case "parent_id":
		return text(p, &r.Parent)
	case "owner_id":
		return text(p, &r.Owner)
	case "depth":
		return number(p, &r.Depth)
	case "command":
		return text(p, &r.Command)
	case "cwd":
		return text(p, &r.Cwd)
	case "create_time":
		return p.time(&r.CreateTime)
	case "start_time":
		return maybe(p, &r.StartTime, p.time)
	case "end_time":
		return maybe(p, &r.EndTime, p.time)
	case "output_file":
		return text(p, &r.OutputFile)
	case "output_bytes":
		return number(p, &r.OutputBytes)
	case "exit_code":
		return maybe(p, &r.ExitCode, func(n *int) bool { return number(p, n) })
	case "cause":
		return maybe(p, &r.Cause, p.cause)
	case "process":
		return maybe(p, &r.Process, p.process)
	case "error":
		return text(p, &r.Error)
	case "priority":
		return text(p, &r.Priority)
	case "pool":
		return text(p, &r.Pool)
	case "timeout_ms":
		return number(p, &r.TimeoutMS)
	case "keep":
		return p.flag(&r.Keep)
	case "tool_use_id":
		return text(p, &r.ToolUseID)
	case sumField:
		var sum string
		return text(p, &sum)
	}
	return false
}

// sumField is the last of a record in a log, of which a reader has made use already.
const sumField = "crc32c"

func (p *parser) rare(r *task.Record, key []byte) bool {
	switch string(key) {
	case "stopping":
		return p.flag(&r.Stopping)
	case "tty":
		return p.flag(&r.TTY)
	case "agent_type":
		return text(p, &r.AgentType)
	case "permission_mode":
		return text(p, &r.Mode)
	case "model":
		return text(p, &r.Model)
	case "prompt":
		return text(p, &r.Prompt)
	case "key":
		return text(p, &r.Key)
	case "silent":
		return p.flag(&r.Silent)
	case "teleported_from":
		return text(p, &r.TeleportedFrom)
	case "on_end":
		return text(p, &r.OnEnd)
	case "resumes":
		return number(p, &r.Resumes)
	case "progress":
		return p.other(&r.Progress)
	case "usage":
		return p.other(&r.Usage)
	case "checkpoint":
		return p.other(&r.Checkpoint)
	case "questions":
		return p.other(&r.Questions)
	case "last_answer":
		return p.other(&r.LastAnswer)
	case "worktree":
		return p.other(&r.Worktree)
	case "team":
		return p.other(&r.Team)
	case "budget":
		return p.other(&r.Budget)
	case "earlier_usage":
		return p.other(&r.Earlier)
	}
	return false
}
