package cli

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

// asking is a project with two live sessions that ask, and one elsewhere.
func asking() *world {
	w := sample()
	w.mine[0].open = []task.Question{
		{ID: "qaaaa1111", Kind: task.Permission, Task: "a11111111", Agent: "review", Tool: "Bash", Reason: "rm is not in the rules",
			Input: json.RawMessage(`{"command":"rm -rf x\u001b[2J\u202e"}`), Digest: "d1", Suggest: "Bash(rm:*)", At: at(50), Until: at(600)},
		{ID: "qaaaa2222", Kind: task.Choice, Task: "slive0000", Tool: "AskUser", Input: json.RawMessage(`{"q":"colour?"}`), Digest: "d2", At: at(40)},
	}
	second := newSession("ssecond00", true)
	second.open = []task.Question{{ID: "qbbbb1111", Task: "ssecond00", Tool: "Write", Input: json.RawMessage(`"begin"`), Hidden: 70_000, Digest: "d3", At: at(45)}}
	w.mine = append(w.mine, second)
	w.others[0].open = []task.Question{{ID: "qcccc1111", Task: "b66666666", Tool: "Bash", Digest: "d4", At: at(1)}}
	return w
}

func TestApprovals(t *testing.T) {
	got := asking().do(t, "approvals")
	want := `qaaaa2222  Answer a question?  20s ago, by slive0000 in session slive0000
  q: colour?
  digest: d2
  ` + "`drover approvals answer qaaaa2222 TEXT`, or deny" + `
qbbbb1111  Allow Write?  15s ago, by ssecond00 in session ssecond00
  input: begin
  (70000 bytes of the input are hidden: ` + "`drover approvals show qbbbb1111`" + ` shows all of it)
  digest: d3
  ` + "`drover approvals allow qbbbb1111`, or deny" + `
qaaaa1111  Allow command rm -rf x<U+001B>[2J<U+202E>?  10s ago, by a11111111 (review) in session slive0000, denied in 9m00s
  why: rm is not in the rules
  command: rm -rf x<U+001B>[2J<U+202E>
  digest: d1
  ` + "`drover approvals allow qaaaa1111`, or deny" + `
  always: ` + "`drover approvals allow qaaaa1111 --always`" + ` also adds the rule Bash(rm:*) to .drover/settings.local.json
`
	if got.code != 0 || got.out != want {
		t.Errorf("%+v\nwant %s", got, want)
	}
	if all := asking().do(t, "approvals", "--all-sessions"); !strings.HasPrefix(all.out, "qcccc1111") {
		t.Errorf("everywhere: %+v", all)
	}
	var list []struct {
		ID      string `json:"id"`
		Session string `json:"session_id"`
		Digest  string `json:"digest"`
		Hidden  int    `json:"hidden_bytes"`
	}
	js := asking().do(t, "approvals", "--json")
	if err := json.Unmarshal([]byte(js.out), &list); err != nil || len(list) != 3 || list[1].ID != "qbbbb1111" || list[1].Session != "ssecond00" ||
		list[1].Digest != "d3" || list[1].Hidden != 70_000 || strings.ContainsAny(js.out, "\x1b\u202e") {
		t.Errorf("as JSON: %v %s", err, js.out)
	}
	none := sample().do(t, "approvals")
	if none.code != 0 || none.err != "" || none.out != "No questions need your answer.\n" {
		t.Errorf("nothing is open: %+v", none)
	}
	if none := sample().do(t, "approvals", "--json"); none.out != "[]\n" {
		t.Errorf("nothing is open: %+v", none)
	}
}

func TestDecide(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		code int
		says string                 // on stdout, or on stderr of a failure
		want *control.DecideRequest // nil: nothing is decided
	}{
		"allow":      {[]string{"allow", "qaaaa1"}, 0, "allowed qaaaa1111: Bash of a11111111", &control.DecideRequest{ID: "qaaaa1111", Digest: "d1", Reply: task.Reply{Allow: true}}},
		"deny":       {[]string{"deny", "qaaaa1111", "--reason", "not x"}, 0, "denied qaaaa1111", &control.DecideRequest{ID: "qaaaa1111", Digest: "d1", Reply: task.Reply{Reason: "not x"}}},
		"input":      {[]string{"allow", "qb", "--input", `{"a":1}`}, 0, "allowed qbbbb1111", &control.DecideRequest{ID: "qbbbb1111", Digest: "d3", Reply: task.Reply{Allow: true, Input: json.RawMessage(`{"a":1}`)}}},
		"answer":     {[]string{"answer", "qaaaa2", "the blue one"}, 0, "answered qaaaa2222", &control.DecideRequest{ID: "qaaaa2222", Digest: "d2", Reply: task.Reply{Allow: true, Text: "the blue one"}}},
		"elsewhere":  {[]string{"deny", "qc", "--all-sessions"}, 0, "denied qcccc1111", &control.DecideRequest{ID: "qcccc1111", Digest: "d4"}},
		"other":      {[]string{"deny", "qccc"}, 0, "denied qcccc1111", &control.DecideRequest{ID: "qcccc1111", Digest: "d4"}},
		"slip":       {[]string{"deny", "qcc"}, 3, "no question", nil},
		"unknown":    {[]string{"allow", "q9"}, 3, "answered or has expired", nil},
		"empty":      {[]string{"allow", ""}, 3, "no question", nil},
		"ambiguous":  {[]string{"allow", "qaaaa"}, 2, "qaaaa1111", nil},
		"allow-text": {[]string{"allow", "qaaaa2222"}, 2, "answer qaaaa2222 TEXT", nil},
		"text-perm":  {[]string{"answer", "qaaaa1111", "yes"}, 2, "allow qaaaa1111", nil},
		"bad-input":  {[]string{"allow", "qaaaa1111", "--input", "[]"}, 2, "--input", nil},
		"form":       {[]string{"answer", "qaaaa3", `{"name":"Ada"}`}, 0, "answered qaaaa3333", &control.DecideRequest{ID: "qaaaa3333", Digest: "d5", Reply: task.Reply{Allow: true, Input: json.RawMessage(`{"name":"Ada"}`)}}},
		"form-keys":  {[]string{"answer", "qaaaa3", `{"age":3}`}, 2, `"name" is missing`, nil},
		"form-text":  {[]string{"answer", "qaaaa3", "Ada"}, 2, "answer qaaaa3333 JSON", nil},
		"form-allow": {[]string{"allow", "qaaaa3"}, 2, "answered by a JSON object", nil},
		"form-deny":  {[]string{"deny", "qaaaa3"}, 0, "denied qaaaa3333", &control.DecideRequest{ID: "qaaaa3333", Digest: "d5"}},
		"no-id":      {[]string{"allow"}, 2, "usage", nil},
		"no-word":    {[]string{"explode"}, 2, "explode", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := asking()
			if strings.HasPrefix(name, "form") {
				w.mine[0].open = append(w.mine[0].open, task.Question{ID: "qaaaa3333", Kind: task.Form, Task: "c11111111", Tool: "work", Digest: "d5", At: at(55),
					Input: json.RawMessage(`{"message":"Who?","schema":{"required":["name"],"properties":{"name":{"type":"string"}}}}`)})
			}
			got := w.do(t, append([]string{"approvals"}, tt.args...)...)
			text := got.out
			if tt.code != 0 {
				text = got.err
			}
			if got.code != tt.code || !strings.Contains(text, tt.says) {
				t.Errorf("%+v, want code %d and %q", got, tt.code, tt.says)
			}
			var decided []control.DecideRequest
			for _, s := range append(w.mine, w.others...) {
				decided = append(decided, s.decided...)
			}
			if tt.want == nil {
				if len(decided) != 0 {
					t.Errorf("decided %+v", decided)
				}
				return
			}
			tt.want.Actor = task.ByUser
			if len(decided) != 1 || !same(t, decided[0], *tt.want) {
				t.Errorf("decided %+v, want %+v", decided, *tt.want)
			}
		})
	}
}

func same(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}

// Who watches is shown what is open and then what is asked, each once.
func TestWatch(t *testing.T) {
	w := asking()
	w.mine = w.mine[:1]
	s := w.mine[0]
	s.open = s.open[:1]
	r, pipe := io.Pipe()
	w.stdout = pipe
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan outcome, 1)
	go func() {
		o := w.doIn(ctx, "approvals", "--watch", "--json")
		_ = pipe.Close()
		done <- o
	}()
	lines := json.NewDecoder(r)
	next := func() string {
		t.Helper()
		var q struct {
			ID      string `json:"id"`
			Session string `json:"session_id"`
		}
		if err := lines.Decode(&q); err != nil || q.Session != "slive0000" {
			t.Fatalf("%+v, %v", q, err)
		}
		return q.ID
	}
	if id := next(); id != "qaaaa1111" {
		t.Errorf("open: %s", id)
	}
	recv(t, s.heeding, "wait for the next")
	s.change(func() { s.open = append(s.open, task.Question{ID: "qdddd1111", Tool: "Bash"}) })
	if id := next(); id != "qdddd1111" {
		t.Errorf("next: %s", id)
	}
	cancel()
	if o := recv(t, done, "end"); o.code != console.CodeInterrupt {
		t.Errorf("ended as %+v", o)
	}
}
