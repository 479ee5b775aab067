package headless

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConversations plays each file of testdata: lines of the client and the program in turn, and the
// lines that must follow from each. Fields that a file leaves out are not compared.
//
//	client: a message of ACP            -> program: a line
//	program: a line                     -> client: a message of ACP
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no conversations: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			protocol, _, _ := strings.Cut(name, "-")
			_, tr, err := Start(protocol, []string{protocol}, "", "5eed")
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			play(t, tr, string(data))
		})
	}
}

func play(t *testing.T, tr Translator, conversation string) {
	t.Helper()
	var due []string // that the last message has produced, as "program: …" or "client: …"
	for i, line := range strings.Split(conversation, "\n") {
		who, text, _ := strings.Cut(line, ": ")
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(who, "-> "):
			if len(due) == 0 {
				t.Fatalf("line %d: nothing more was sent, want %s", i+1, line)
			}
			to, got, _ := strings.Cut(due[0], ": ")
			if due = due[1:]; to != strings.TrimPrefix(who, "-> ") || !covers(t, got, text) {
				t.Fatalf("line %d: sent %s: %s\nwant %s", i+1, to, got, line)
			}
		default:
			if len(due) > 0 {
				t.Fatalf("line %d: also sent %s", i+1, due)
			}
			take := tr.FromProgram
			if who == "client" {
				take = tr.FromClient
			}
			s := take([]byte(text))
			for _, m := range s.Program {
				due = append(due, "program: "+encode(t, m))
			}
			for _, m := range s.Client {
				due = append(due, "client: "+encode(t, m))
			}
		}
	}
	if len(due) > 0 {
		t.Fatalf("at the end: also sent %s", due)
	}
}

func encode(t *testing.T, m any) string {
	t.Helper()
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// covers reports whether got has all that want has.
func covers(t *testing.T, got, want string) bool {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("%s: %v", want, err)
	}
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	return within(g, w)
}

func within(got, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		for key, value := range w {
			if v, has := g[key]; !has || !within(v, value) {
				return false
			}
		}
		return ok
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i := range w {
			if !within(g[i], w[i]) {
				return false
			}
		}
		return true
	}
	return got == want
}

func TestStart(t *testing.T) {
	fresh, _, err := Start(Claude, []string{"claude"}, "", "5eed")
	if err != nil || !strings.HasSuffix(strings.Join(fresh, " "), "--session-id 5eed") {
		t.Errorf("a new conversation: %q, %v", fresh, err)
	}
	again, _, err := Start(Claude, []string{"claude"}, "0ld", "5eed")
	if err != nil || !strings.HasSuffix(strings.Join(again, " "), "--resume 0ld") {
		t.Errorf("an earlier conversation: %q, %v", again, err)
	}
	if _, _, err := Start("smoke", nil, "", ""); err == nil || !strings.Contains(err.Error(), `"smoke" is unknown (use claude, codex, or none for ACP)`) {
		t.Errorf("an unknown protocol: %v", err)
	}
}

// FuzzTranslators: no line makes a translator panic, or write what is no message.
func FuzzTranslators(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Fuzz(func(t *testing.T, conversation string) {
		for _, tr := range []Translator{newClaude("5eed"), newCodex()} {
			for line := range strings.Lines(conversation) {
				who, text, _ := strings.Cut(strings.TrimRight(line, "\n"), ": ")
				take := tr.FromProgram
				if who == "client" {
					take = tr.FromClient
				}
				s := take([]byte(text))
				for _, m := range s.Program {
					encode(t, m)
				}
				for _, m := range s.Client {
					encode(t, m)
				}
			}
		}
	})
}
