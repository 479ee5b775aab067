package mcpconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/internal/mcp/mcpclient"
)

// env has what it is given.
func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// put writes a file and returns its path.
func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func yes() bool { return true }

func TestExpand(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                 "plain",
		"a ${A} b ${B:-c}":      "a one b c",
		"${A:-x}":               "one",
		"${B:-}":                "",
		"${B:-${A}}":            "${A}", // the first closing bracket ends it, so a default is no expression
		"$A $(x) ${a b} ${":     "$A $(x) ${a b} ${",
		"${9X} ${} ${A":         "${9X} ${} ${A",
		"${A}${A}":              "oneone",
		"https://h/${A}?k=${A}": "https://h/one?k=one",
	} {
		got, err := Expand(text, env("A", "one"))
		if err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	if got, err := Expand("x ${NOPE} y", env()); err == nil || got != "" || !strings.Contains(err.Error(), "variable NOPE is not set") {
		t.Errorf("not set: %q, %v", got, err)
	}
}

func TestParse(t *testing.T) {
	got, err := Parse([]byte("\xef\xbb\xbf"+`{"other": 1, "mcpServers": {
		"b": {"command": "${BIN}", "args": ["${X:-y}"], "env": {"K": "${X:-v}"}, "odd": [1], "timeout": 5000},
		"a": {"type": "http", "url": "https://${HOST}/mcp", "headers": {"A": "Bearer ${T}"}},
		"c": {"command": "x", "disabled": true},
		"d": {"command": ["x"]},
		"e": {"command": "${NOPE}"},
		"f": {},
		"": {"command": "x"}
	}}`), env("BIN", "/b", "HOST", "h", "T", "t"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range got {
		text, _ := json.Marshal(e.Server)
		lines = append(lines, fmt.Sprintf("%s|%s|%v|%v", e.Name, text, e.Disabled, e.Err != nil))
	}
	want := []string{
		`|{"command":"x"}|false|true`,
		`a|{"type":"http","url":"https://h/mcp","headers":{"A":"Bearer t"}}|false|false`,
		`b|{"command":"/b","args":["y"],"env":{"K":"v"},"timeout":5000}|false|false`,
		`c|{"command":"x"}|true|false`,
	}
	for i, w := range want {
		if lines[i] != w {
			t.Errorf("%s, want %s", lines[i], w)
		}
	}
	for i, why := range []string{"not understood", "NOPE is not set", "neither a command nor a url"} {
		if e := got[4+i]; e.Err == nil || !strings.Contains(e.Err.Error(), why) || e.Usable() {
			t.Errorf("%s: %v, want %s", e.Name, e.Err, why)
		}
	}
	for _, bad := range []string{"[]", `{"mcpServers": []}`, `{} {}`, `{"mcpServers": {"a": `} {
		if _, err := Parse([]byte(bad), nil); err == nil {
			t.Errorf("%q is understood", bad)
		}
	}
	for text, n := range map[string]int{"": 0, "\xef\xbb\xbf // none\n": 0, "{// c\n\"mcpServers\": {\"a\": {\"command\": \"x\",},},}": 1} {
		if got, err := Parse([]byte(text), nil); err != nil || len(got) != n {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if got, err := Parse([]byte(`{"servers": {"a": {"command": "x"}}}`), nil); err != nil || len(got) != 1 {
		t.Errorf("servers: %v, %v", got, err)
	}
}

// What is read where, and which of two counts.
func TestRead(t *testing.T) {
	home, folder := t.TempDir(), t.TempDir()
	user := put(t, home, "drover/mcp.json", `{"mcpServers": {"a": {"command": "user"}, "b": {"command": "user"}, "same": {"command": "s"}}}`)
	put(t, folder, ".mcp.json", `{"mcpServers": {"a": {"command": "project"}, "c": {"command": "project"}, "same": {"command": "s"}}}`)
	put(t, folder, ".drover/mcp.json", `{"mcpServers": {"c": {"command": "own"}}}`)
	e := env("XDG_CONFIG_HOME", home)
	in := Input{Given: []string{`{"mcpServers": {"b": {"command": "given"}}}`}, Cwd: folder, Files: Files(e, folder), Env: e}
	read := func(trusted func() bool) string {
		t.Helper()
		in.Trusted = trusted
		entries, err := Read(in)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, e := range entries {
			word := "-"
			switch {
			case e.Waits:
				word = "waits"
			case e.Hidden:
				word = "hidden"
			case e.Usable():
				word = "used"
			}
			if e.Shadows == user && !e.Waits {
				word += " shadows"
			}
			out = append(out, e.Name+" "+e.Server.Command+" "+word)
		}
		return strings.Join(out, ", ")
	}
	// M12: before trust the files of the project name servers, and no more.
	if got, want := read(nil), "b given used, c own waits, a project waits, c project waits, same s waits, a user used, b user hidden, same s used"; got != want {
		t.Errorf("without trust: %s\nwant %s", got, want)
	}
	if got, want := read(yes), "b given used, c own used, a project used shadows, c project hidden, same s used, a user hidden, b user hidden, same s hidden"; got != want {
		t.Errorf("with trust: %s\nwant %s", got, want)
	}
}

// A name that is another one, and the same in rules, takes a place too.
func TestShadowCalled(t *testing.T) {
	home, folder := t.TempDir(), t.TempDir()
	user := put(t, home, "drover/mcp.json", `{"mcpServers": {"hub": {"command": "user"}}}`)
	put(t, folder, ".mcp.json", `{"mcpServers": {"Hub": {"command": "project"}, "other": {"command": "project"}}}`)
	e := env("XDG_CONFIG_HOME", home)
	entries, err := Read(Input{Cwd: folder, Files: Files(e, folder), Env: e, Trusted: yes, Called: strings.ToLower})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if (e.Shadows == user) != (e.Name == "Hub") {
			t.Errorf("%s shadows %q", e.Name, e.Shadows)
		}
	}
}

func TestReadBad(t *testing.T) {
	home, folder := t.TempDir(), t.TempDir()
	outside := put(t, home, "elsewhere.json", `{"mcpServers": {"x": {"command": "x"}}}`)
	if err := os.Symlink(outside, filepath.Join(folder, ".mcp.json")); err != nil {
		t.Fatal(err)
	}
	put(t, home, "drover/mcp.json", `{"mcpServers": {"u": {"command": "u"}}}`)
	e := env("XDG_CONFIG_HOME", home)
	entries, err := Read(Input{Given: []string{"nothing.json", `{"mcpServers": 7}`}, Cwd: folder, Files: Files(e, folder), Trusted: yes, Env: e})
	for _, why := range []string{"nothing.json", "--mcp-config: mcpServers is no object", ".mcp.json"} {
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("error %v, want %s", err, why)
		}
	}
	if len(entries) != 1 || entries[0].Name != "u" || !entries[0].Usable() {
		t.Errorf("entries %+v", entries)
	}
}

// What others have put into a file stays, and as it was.
func TestEdit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sub", "mcp.json")
	if err := Add(path, "one", mcpclient.Server{Command: "c", Args: []string{"<a>"}}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of a new file: %v, %v", info.Mode(), err)
	}
	path = put(t, dir, "mcp.json", `{"z": {"b": 1.50, "a": 2}, "mcpServers": {"q": {"command": "x", "theirs": ["<&>", 2]}}, "a&": null}`)
	if err := Add(path, "one", mcpclient.Server{Command: "c", Args: []string{"a&b"}}); err != nil {
		t.Fatal(err)
	}
	if err := Add(path, "one", mcpclient.Server{Command: "d"}); !errors.Is(err, ErrExists) {
		t.Errorf("added twice: %v", err)
	}
	flat := func() string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(data)), "")
	}
	if got, want := flat(), `{"z":{"b":1.50,"a":2},"mcpServers":{"q":{"command":"x","theirs":["<&>",2]},"one":{"command":"c","args":["a&b"]}},"a&":null}`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode of an old file: %v, %v", info.Mode(), err)
	}
	for _, want := range []bool{true, false} {
		if had, err := Remove(path, "one"); err != nil || had != want {
			t.Errorf("removed %v, %v, want %v", had, err, want)
		}
	}
	if got, want := flat(), `{"z":{"b":1.50,"a":2},"mcpServers":{"q":{"command":"x","theirs":["<&>",2]}},"a&":null}`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	put(t, dir, "mcp.json", `{"mcpServers": {`)
	if err := Add(path, "one", mcpclient.Server{Command: "c"}); err == nil || !strings.Contains(err.Error(), "fix it first") || flat() != `{"mcpServers":{` {
		t.Errorf("a broken file: %v, %s", err, flat())
	}
}

// Additions at the same time are all there in the end.
func TestEditTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := Add(path, fmt.Sprint("s", i), mcpclient.Server{Command: "c"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Parse(data, nil); err != nil || len(got) != 20 {
		t.Errorf("%d servers, %v", len(got), err)
	}
}

func TestM9Pins(t *testing.T) {
	dir := t.TempDir()
	path := PinsFile(dir)
	tool := func(about, schema string) mcpclient.Tool {
		return mcpclient.Tool{Name: "t", Description: about, InputSchema: json.RawMessage(schema)}
	}
	note := func(key string, x mcpclient.Tool, distrust string) string {
		t.Helper()
		changed, err := PinsAt(path).Note(key, "srv", []mcpclient.Tool{x}, distrust)
		if err != nil {
			t.Fatal(err)
		}
		return changed["t"]
	}
	old := tool("reads", `{}`)
	for i, step := range []struct {
		key, distrust string
		tool          mcpclient.Tool
		want          string
	}{
		{"k", "", old, ""},
		{"k", "", old, ""},
		{"k", "", tool("reads and sends", `{}`), "since it was used first, its description has changed"},
		{"k", "", tool("reads", `{"a":1}`), "since it was used first, its input has changed"},
		{"k", "", tool("x", `{"a":1}`), "since it was used first, its description and its input have changed"},
		{"k", "", old, ""}, // what is not accepted is not remembered
		{"other", "", tool("x", `{}`), ""},
		{"shadow", "it takes a place", old, "it takes a place"},
		{"shadow", "it takes a place", old, "it takes a place"},
	} {
		if got := note(step.key, step.tool, step.distrust); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
	for _, key := range []string{"k", "shadow"} {
		if err := PinsAt(path).Accept(key, "srv", tool("new", `{}`)); err != nil {
			t.Fatal(err)
		}
		if got := note(key, tool("new", `{}`), "it takes a place"); got != "" {
			t.Errorf("accepted, and %q", got)
		}
	}
	if known, err := PinsAt(path).Forget([]string{"k", "nobody"}); err != nil || !known {
		t.Errorf("forgotten %v, %v", known, err)
	}
	if got := note("k", old, ""); got != "" {
		t.Errorf("forgotten, and %q", got)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := PinsAt(path).Note("k", "srv", []mcpclient.Tool{old}, ""); err == nil || !strings.Contains(err.Error(), "remove it to begin anew") {
		t.Errorf("a broken file: %v", err)
	}
}

func TestPinsBound(t *testing.T) {
	p := PinsAt(PinsFile(t.TempDir()))
	err := p.change(func(all *pinned) bool {
		for i := range maxPinned + 1 {
			all.server(fmt.Sprint("k", i), "srv")
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.change(func(all *pinned) bool {
		if len(all.Servers) != maxPinned || all.Servers["k0"] != nil || all.Servers["k1"] == nil {
			t.Errorf("%d servers", len(all.Servers))
		}
		return false
	}); err != nil {
		t.Fatal(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"mcpServers": {"a": {"command": "${X:-y}", "args": ["a"]}}}`))
	f.Add([]byte(`{"servers": {"a": {"url": "http://h", "headers": {"A": "b"}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, _ := Parse(data, env())
		for _, e := range entries {
			if e.Err == nil && e.Server.Check() != nil {
				t.Errorf("%q is taken: %v", e.Name, e.Server.Check())
			}
		}
	})
}
