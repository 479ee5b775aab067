package teleport

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/task"
)

// made is a session of the past, with a conversation, an agent and a command.
type made struct {
	root  home.Root
	place home.Session
	info  control.Info
}

const secret = "sk-very-secret-value\"1"

func message(role agent.Role, text string) agent.Record {
	return agent.Record{Message: agent.NewMessage(role, agent.TextBlock(text))}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func past(t *testing.T, change ...func(*task.Record)) made {
	t.Helper()
	root, folder := home.At(t.TempDir()), t.TempDir()
	id := task.NewSessionID()
	m := made{root: root, place: root.Project(folder).Session(id)}
	if err := m.place.Ensure(); err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1000, 0).UTC()
	end := start.Add(time.Minute)
	m.info = control.Info{Session: id, Project: m.place.Project().Folder(), Title: "about " + secret, Role: "prompt", StartTime: start, EndTime: &end, Dir: m.place.Dir()}
	transcript := func(path string, records ...agent.Record) {
		tr, _, err := agent.OpenTranscript(path, agent.Meta{SessionID: string(id), AgentName: "main", Cwd: folder})
		if err == nil {
			err = errors.Join(tr.Append(records...), tr.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	told := message(agent.User, "the agent has ended")
	told.Mail = []int64{40}
	transcript(m.place.Transcript(), message(agent.User, "my key is "+secret), message(agent.Assistant, "I see"), told, message(agent.Assistant, "good"))
	transcript(m.place.AgentTranscript("a0000000a"), message(agent.User, "look"), message(agent.Assistant, "found"))
	put(t, m.place.Output("b0000000b"), strings.Repeat("line\n", 10)+secret+"\n")
	put(t, filepath.Join(root.Todos(string(id)), "1.json"), `{"subject":"go on"}`)
	put(t, filepath.Join(root.Todos(string(id)), "last"), "1\n")
	put(t, filepath.Join(root.Todos(string(id)), "lock"), "")
	j, err := journal.Open(m.place.DB(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	code := 0
	for n, r := range []task.Record{
		{ID: "a0000000a", Kind: task.LocalAgent, Status: task.Completed, AgentType: "finder", Owner: id, Checkpoint: []byte(`{"v":1}`)},
		{ID: "b0000000b", Kind: task.LocalBash, Status: task.Completed, Command: "seq 10", Parent: "a0000000a", ExitCode: &code, Process: &task.Process{PID: 7}},
	} {
		r.Run, r.Session, r.Name, r.CreateTime, r.StartTime, r.EndTime = task.RunID(fmt.Sprintf("run_%d", n)), id, "n"+string(r.ID), start, &start, &end
		r.OutputFile = m.place.Output(r.ID)
		for _, f := range change {
			f(&r)
		}
		e := lifecycle.Entry{Verb: task.Complete, At: end, Task: r, Answer: "the answer"}
		if r.Status.Terminal() {
			e.Notification = &lifecycle.Notification{Run: r.Run, Task: r.ID, Owner: r.Owner}
		}
		if _, err := j.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m made) export(t *testing.T, opt Options) (Manifest, []byte, error) {
	t.Helper()
	def := filepath.Join(t.TempDir(), "finder.md")
	put(t, def, "---\nname: finder\n---\n")
	var buf bytes.Buffer
	got, err := Export(t.Context(), &buf, Source{Place: m.place, Info: m.info, Todos: m.root.Todos(string(m.place.ID())), Definition: func(kind string) string {
		if kind == "finder" {
			return def
		}
		return ""
	}}, opt)
	return got, buf.Bytes(), err
}

func target(t *testing.T) Target {
	t.Helper()
	root, id := home.At(t.TempDir()), task.NewSessionID()
	return Target{Project: root.Project(t.TempDir()), ID: id, Alias: "teleport_x", Role: "prompt", Program: "test", Todos: root.Todos(string(id))}
}

func TestRoundTrip(t *testing.T) {
	m := past(t)
	before := snapshot(t, m.place.Dir())
	opt := Options{Program: "1", Cwd: true, Env: map[string]string{"LANG": "C"}, Secrets: []Secret{{"A_KEY", secret}, {"SHORT_KEY", "line"}}}
	man, data, err := m.export(t, opt)
	if err != nil {
		t.Fatal(err)
	}
	if after := snapshot(t, m.place.Dir()); after != before {
		t.Errorf("the session was changed:\n%s\n%s", before, after)
	}
	to := target(t)
	got, err := Import(t.Context(), bytes.NewReader(data), to)
	if err != nil {
		t.Fatal(err)
	}
	place := to.Project.Session(to.ID)
	if got.Source != string(m.place.ID()) || got.Cwd != m.info.Project || got.Env["LANG"] != "C" || got.Transcript != "transcript.jsonl" || got.Agent != "main" || got.Secrets != man.Secrets {
		t.Errorf("manifest %+v", got)
	}

	tr, h, err := agent.OpenTranscript(place.Transcript(), agent.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	var said []string
	for _, msg := range h.Messages {
		blocks, _ := msg.Blocks()
		said = append(said, blocks[0].Text)
	}
	if want := "my key is [left out: A_KEY]|I see|the agent has ended|good"; strings.Join(said, "|") != want {
		t.Errorf("conversation %q", said)
	}
	if h.Meta.SessionID != string(to.ID) || h.Meta.Cwd != to.Project.Folder() || h.Meta.ForkedFrom != string(m.place.ID()) {
		t.Errorf("meta %+v", h.Meta)
	}
	for _, path := range []string{place.Transcript(), place.AgentTranscript("a0000000a")} {
		if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), `"session_id":"`+string(m.place.ID())) {
			t.Errorf("%s belongs to the old session: %v", path, err)
		}
	}

	raw, err := os.ReadFile(place.InfoFile())
	var info control.Info
	if err := errors.Join(err, json.Unmarshal(raw, &info)); err != nil {
		t.Fatal(err)
	}
	if info.Session != to.ID || info.Role != "prompt" || info.EndTime == nil || strings.Join(info.Aliases, " ") != "teleport_x "+string(m.place.ID()) || info.TeleportedFrom != string(m.place.ID()) {
		t.Errorf("session.json %s", raw)
	}
	a, err := archive.Open(t.Context(), place, info)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	one, err := control.WholeResult(t.Context(), a, "a0000000a")
	if err != nil || one.Text != "the answer" || one.Task.Owner != to.ID || one.Task.Session != to.ID || one.Task.TeleportedFrom != m.place.ID() || one.Task.Checkpoint != nil || one.Task.Status != task.Completed {
		t.Errorf("agent %+v, %v", one, err)
	}
	out, err := a.Output(t.Context(), control.OutputRequest{Ref: "b0000000b"})
	if want := strings.Repeat("line\n", 10) + "[left out: A_KEY]\n"; err != nil || string(out.Data) != want {
		t.Errorf("output %q, %v", out.Data, err)
	}

	// Later mail has low numbers again, of which none may count as told.
	if tr.Holds(40) || len(h.Mail) > 0 {
		t.Errorf("the conversation knows mail of the old session: %v", h.Mail)
	}
	j, err := journal.Open(place.DB(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if owed, err := j.Unacknowledged(t.Context(), to.ID); err != nil || len(owed) > 0 {
		t.Errorf("owed again: %v, %v", owed, err)
	}

	for name, want := range map[string]string{filepath.Join(to.Todos, "1.json"): `{"subject":"go on"}`, filepath.Join(to.Todos, "last"): "1\n",
		filepath.Join(place.Dir(), dirName, "definitions", "finder.md"): "---\nname: finder\n---\n"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if plain := unzip(t, data); bytes.Contains(plain, []byte("very-secret")) {
		t.Error("the secret travels")
	}
	if man.Secrets < 3 {
		t.Errorf("%d secrets were left out", man.Secrets)
	}
}

func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.Contains(path, ".db") || e.Name() == "lock" {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&b, "%s %x\n", path, sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func unzip(t *testing.T, data []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// A worktree stays where it is, and so does its place.
func TestWorktreeStays(t *testing.T) {
	_, data, err := past(t, func(r *task.Record) {
		r.Worktree = &task.Worktree{Path: "/elsewhere/tree", Branch: "b", Text: "kept"}
	}).export(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	to := target(t)
	if _, err := Import(t.Context(), bytes.NewReader(data), to); err != nil {
		t.Fatal(err)
	}
	a, err := archive.Open(t.Context(), to.Project.Session(to.ID), control.Info{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if r, err := a.Get(t.Context(), "a0000000a"); err != nil || r.Worktree == nil || r.Worktree.Path != "" || r.Worktree.Branch != "b" {
		t.Errorf("%+v, %v", r.Worktree, err)
	}
}

// TP-01, TP-04: the folder and the variables travel only if that is wanted.
func TestWithout(t *testing.T) {
	got, data, err := past(t).export(t, Options{})
	if err != nil || got.Cwd != "" || got.Env != nil || bytes.Contains(unzip(t, data)[:2000], []byte("original_")) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRefused(t *testing.T) {
	running := past(t, func(r *task.Record) {
		r.Kind, r.ID, r.Status, r.EndTime, r.Checkpoint = task.RemoteAgent, "r"+r.ID[1:], task.Running, nil, []byte(`{"v":1}`)
	})
	if _, _, err := running.export(t, Options{}); !errors.Is(err, ErrRunning) {
		t.Errorf("with live work: %v", err)
	}
	m := past(t)
	unlock, err := m.place.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.export(t, Options{}); !errors.Is(err, ErrRunning) {
		t.Errorf("open elsewhere: %v", err)
	}
	unlock()
	for name, value := range map[string]string{"MY_TOKEN": "x", "HARMLESS": "a " + secret} {
		if _, _, err := m.export(t, Options{Env: map[string]string{name: value}, Secrets: []Secret{{"A_KEY", secret}}}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("variable %s: %v", name, err)
		}
	}
	if err := os.Remove(m.place.Transcript()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.export(t, Options{}); err == nil || !strings.Contains(err.Error(), "no conversation") {
		t.Errorf("without a conversation: %v", err)
	}
	if err := os.Symlink("/etc/passwd", m.place.Transcript()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.export(t, Options{}); err == nil {
		t.Error("a link was followed")
	}
}

// A secret is found wherever a read begins.
func TestRedact(t *testing.T) {
	r := NewRedactor([]Secret{{"A", "0123456789"}, {"B", "0123456789abc"}, {"C", "short"}})
	for _, at := range []int{0, 1, copyPart - 5, copyPart - 1, copyPart, 2*copyPart - 12} {
		for value, mark := range map[string]string{"0123456789": "[left out: A]", "0123456789abc": "[left out: B]"} {
			before, after := strings.Repeat("x", at), strings.Repeat("y", 30)+"short"
			var out bytes.Buffer
			r.n = 0
			if err := r.copy(&out, strings.NewReader(before+value+after)); err != nil {
				t.Fatal(err)
			}
			if out.String() != before+mark+after || r.n != 1 {
				t.Errorf("at %d: %d replaced, …%q", at, r.n, out.String()[max(0, at-3):min(out.Len(), at+40)])
			}
		}
	}
	for name, is := range map[string]bool{"DB_PASS": true, "MYSQL_PWD": true, "NPM_AUTH": true, "PWD": false, "OLDPWD": false, "SSH_AUTH_SOCK": false, "ANTHROPIC_API_KEY": true, "gh_token": true, "DB_PASSWORD": true, "AWS_SECRET_ACCESS": true, "PATH": false, "LANG": false} {
		if IsSecret(name) != is {
			t.Errorf("%s: %v", name, !is)
		}
	}
}

// A secret is found as each of our files writes it, and in what a tool was given as
// JSON within JSON.
func TestRedactWritten(t *testing.T) {
	const value = "a<b>&\"c\\d\u2028e"
	plain := func(v any) string {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(b.String())
	}
	escaped, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{value, plain(value), string(escaped), plain(plain(value)), plain(string(escaped))} {
		var out bytes.Buffer
		r := NewRedactor([]Secret{{"A", value}})
		if err := r.copy(&out, strings.NewReader(text)); err != nil || r.n != 1 || strings.Trim(out.String(), `"\`) != "[left out: A]" {
			t.Errorf("%s: %s, %v", text, out.String(), err)
		}
	}
}

// entry is one of a hostile archive.
type entry struct {
	name string
	data string
	kind byte
}

func pack(t testing.TB, m any, entries ...entry) []byte {
	t.Helper()
	head, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	for _, e := range append([]entry{{name: manifestName, data: string(head)}}, entries...) {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Size: int64(len(e.data)), Mode: 0o600}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Typeflag == tar.TypeSymlink || h.Typeflag == tar.TypeLink {
			h.Linkname, h.Size = "/etc/passwd", 0
		}
		if h.Typeflag == tar.TypeFifo || h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeChar {
			h.Size = 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, e.data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func file(name, data string) File {
	sum := sha256.Sum256([]byte(data))
	return File{Name: name, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
}

func manifest(files ...File) Manifest {
	return Manifest{Format: 1, Source: "s00000001", Transcript: transcriptName, Files: files}
}

// Whatever an archive does, nothing of it is written unless all of it is good.
func TestHostile(t *testing.T) {
	const talk = "{}\n"
	good := file(transcriptName, talk)
	whole := entry{name: transcriptName, data: talk}
	ended := `{"task":{"task_id":"b0000000b","run_id":"r","task_type":"local_bash","status":"%s"}}` + "\n"
	tasks := func(text string) ([]byte, string) {
		return pack(t, manifest(good, file(tasksName, text)), whole, entry{name: tasksName, data: text}), "tasks.jsonl, line"
	}
	type hostile struct {
		data []byte
		says string
	}
	cases := map[string]hostile{
		"empty":      {nil, "no gzip"},
		"text":       {[]byte("hello"), "no gzip"},
		"headless":   {pack(t, manifest(good), whole)[:20], "manifest"},
		"later":      {pack(t, Manifest{Format: 2}), "form is 2"},
		"nothing":    {pack(t, manifest()), "no conversation"},
		"missing":    {pack(t, manifest(good)), "ends before"},
		"digest":     {pack(t, manifest(File{transcriptName, 3, strings.Repeat("0", 64)}), whole), "digest"},
		"size":       {pack(t, manifest(File{transcriptName, 4, good.SHA256}), whole), "bytes"},
		"twice":      {pack(t, manifest(good, good), whole, whole), "twice"},
		"more":       {pack(t, manifest(good), whole, entry{name: "session.json", data: "{}"}), "follows"},
		"order":      {pack(t, manifest(good, file(infoName, "{}")), entry{name: infoName, data: "{}"}, whole), "stands where"},
		"link":       {pack(t, manifest(good), entry{name: transcriptName, kind: tar.TypeSymlink}), "regular"},
		"hardlink":   {pack(t, manifest(good), entry{name: transcriptName, kind: tar.TypeLink}), "regular"},
		"fifo":       {pack(t, manifest(good), entry{name: transcriptName, kind: tar.TypeFifo}), "regular"},
		"device":     {pack(t, manifest(good), entry{name: transcriptName, kind: tar.TypeChar}), "regular"},
		"negative":   {pack(t, manifest(File{transcriptName, -1, ""}), whole), "bytes"},
		"huge":       {pack(t, manifest(File{transcriptName, maxFile + 1, ""}), whole), "bytes"},
		"truncated":  {pack(t, manifest(good), whole)[:100], ""},
		"trailing":   {append(pack(t, manifest(good), whole), "more"...), "end"},
		"transcript": {pack(t, manifest(file(transcriptName, `{"format":99}`+"\n")), entry{name: transcriptName, data: `{"format":99}` + "\n"}), "form is 99"},
	}
	for _, name := range []string{"../x", "/etc/passwd", "tasks/../x", "tasks/b0000000b.output/x", "tasks/b.output", "subagents/agent-../../x.jsonl", "todos/01.json", "todos/../1.json",
		"definitions/../x.md", "definitions/A.md", "definitions/.md", "session.db", "lock", "", ".", "tasks", "todos/lock", "a\\b", "tasks/b0000000b.output\x00"} {
		cases["name "+name] = hostile{pack(t, manifest(good, file(name, "x")), whole), "no name"}
	}
	for name, text := range map[string]string{"task-broken": "{\n", "task-alive": fmt.Sprintf(ended, "running"), "task-twice": strings.Repeat(fmt.Sprintf(ended, "completed"), 2),
		"task-path": strings.Replace(fmt.Sprintf(ended, "completed"), "b0000000b", "../../x", 1), "task-kind": strings.Replace(fmt.Sprintf(ended, "completed"), "local_bash", "local_agent", 1)} {
		data, says := tasks(text)
		cases[name] = hostile{data, says}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			to := target(t)
			if _, err := Import(t.Context(), bytes.NewReader(c.data), to); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want something about %q", err, c.says)
			}
			if _, err := os.Lstat(to.Project.Session(to.ID).Dir()); err == nil {
				t.Error("something was left")
			}
		})
	}
}

func TestBomb(t *testing.T) {
	zeros := strings.Repeat("\x00", 100<<20)
	data := pack(t, manifest(file(transcriptName, zeros)), entry{name: transcriptName, data: zeros})
	if _, err := Check(bytes.NewReader(data)); !errors.Is(err, errBomb) {
		t.Errorf("%d bytes became %d: %v", len(data), len(zeros), err)
	}
}

// What was there is never written over, and what could not be finished is gone.
func TestImportTwice(t *testing.T) {
	_, data, err := past(t).export(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	to := target(t)
	if _, err := Import(t.Context(), bytes.NewReader(data), to); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, to.Project.Session(to.ID).Dir())
	if _, err := Import(t.Context(), bytes.NewReader(data), to); err == nil {
		t.Error("a session was written over")
	}
	if after := snapshot(t, to.Project.Session(to.ID).Dir()); after != before {
		t.Error("it was changed")
	}
	other := target(t)
	put(t, filepath.Join(other.Todos, "1.json"), "mine")
	if _, err := Import(t.Context(), bytes.NewReader(data), other); err == nil {
		t.Error("a to-do list was written over")
	}
	if text, _ := os.ReadFile(filepath.Join(other.Todos, "1.json")); string(text) != "mine" {
		t.Error("a to-do list is gone")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	third := target(t)
	if _, err := Import(ended, bytes.NewReader(data), third); err == nil {
		t.Error("an import that was broken off is there")
	}
	for _, id := range []Target{other, third} {
		if _, err := os.Lstat(id.Project.Session(id.ID).Dir()); err == nil {
			t.Error("something was left")
		}
	}
}

// TP-02: a manifest is the same after it was written and read.
func TestManifest(t *testing.T) {
	m := manifest(file(transcriptName, "x"))
	m.Created, m.Cwd, m.Env, m.Secrets, m.Agent = time.Unix(1000, 0).UTC(), "/work", map[string]string{"A": "b"}, 3, "main"
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"source_session_id", "agent_id", "original_cwd", "original_env", "transcript_path"} {
		if !regexp.MustCompile(`"` + field + `":`).Match(raw) {
			t.Errorf("no %s in %s", field, raw)
		}
	}
	var back Manifest
	if err := json.Unmarshal(raw, &back); err != nil || fmt.Sprint(back) != fmt.Sprint(m) {
		t.Errorf("%+v, %v", back, err)
	}
}

// No archive, whatever it holds, makes anything outside its session.
func FuzzImport(f *testing.F) {
	const talk = "{}\n"
	f.Add(pack(f, manifest(file(transcriptName, talk)), entry{name: transcriptName, data: talk}))
	f.Add(pack(f, manifest(file("../x", "x")), entry{name: "../x", data: "x"}))
	f.Add([]byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := Check(bytes.NewReader(data)); err == nil {
			if err := m.check(); err != nil {
				t.Error(err)
			}
			dir := t.TempDir()
			if _, err := extract(bytes.NewReader(data), saferoot.Dir(dir), dir); err != nil {
				t.Errorf("good, and cannot be extracted: %v", err)
			}
		}
	})
}
