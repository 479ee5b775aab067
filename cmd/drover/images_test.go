package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/test/modeltest"
)

// dot is a PNG of one point.
const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// TestImages: a model sees the images of a prompt, of a file that it reads, and of a line of
// the Agent SDK, also after the conversation was resumed; one that sees none is not called.
func TestImages(t *testing.T) {
	bin := build(t)
	image := func(p *place, name string) string {
		data, err := base64.StdEncoding.DecodeString(dot)
		if err != nil {
			p.t.Fatal(err)
		}
		path := filepath.Join(p.dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			p.t.Fatal(err)
		}
		return path
	}
	session := func(t *testing.T, r result) string {
		t.Helper()
		all := r.objects(t)
		id, _ := all[len(all)-1]["session_id"].(string)
		return id
	}
	sees := func(t *testing.T, what string, r *modeltest.Request, n int) {
		t.Helper()
		source := `"source":{"type":"base64","media_type":"image/png","data":"` + dot + `"}`
		if got := strings.Count(string(r.Body), source); got != n {
			t.Errorf("%s: the model sees %d images, want %d: %s", what, got, n, r.Body)
		}
	}
	all := cases{
		"prompt": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("a dot"), says("still a dot"), says("two dots")}})
			image(p, "a.png")
			id := session(t, p.good("-p", "what is this?", "--image", "a.png", "--output-format=json"))
			p.good("-p", "and now?", "--resume", id)
			p.good("-p", "both?", "--resume", id, "--image", "a.png", "--image", image(p, "b.png"))
			for i, n := range []int{1, 1, 3} {
				sees(t, "prompt", m.Requests()[i], n)
			}
			if said := spoken(t, m.Requests()[0]); said != "[image 1: a.png]  what is this?" {
				t.Errorf("the model reads %q", said)
			}
			if list := p.good("fork", "--list", id).stdout(); !strings.Contains(list, "what is this? [image 1: a.png]") ||
				strings.Contains(list, "#") {
				t.Errorf("prompts %q", list)
			}
		},
		"detached": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("a dot")}})
			image(p, "a.png")
			id := p.good("-p", "-d", "what is this?", "--image", "a.png").stdout()
			p.good("wait", id)
			sees(t, "detached", m.Requests()[0], 1)
		},
		"read": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {calls("Read", object{"file_path": "a.png"}), says("a dot"), says("still")}})
			image(p, "a.png")
			id := session(t, p.good("-p", "look at a.png", "--output-format=json"))
			p.good("-p", "and now?", "--resume", id)
			for i, n := range []int{0, 1, 1} {
				sees(t, "read", m.Requests()[i], n)
			}
		},
		"stream": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("a dot")}})
			line := `{"type":"user","message":{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","source":` +
				`{"type":"base64","media_type":"image/png","data":"` + dot + `"}}]},"parent_tool_use_id":null,"session_id":""}` + "\n"
			file := filepath.Join(p.dir, "lines")
			if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
				t.Fatal(err)
			}
			in, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			p.startWith(in, "-p", "--input-format=stream-json", "--output-format=stream-json", "--verbose").wait()
			sees(t, "stream", m.Requests()[0], 1)
		},
		"refused": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("never")}})
			p.env = append(p.env, "OPENAI_API_KEY=sk-test", "OPENAI_BASE_URL="+m.URL)
			image(p, "a.png")
			if err := os.WriteFile(filepath.Join(p.dir, "b.png"), []byte("<svg>"), 0o600); err != nil {
				t.Fatal(err)
			}
			p.fails(2, []string{"-p", "x", "--image", "b.png"}, "b.png", "neither PNG, JPEG, GIF nor WebP")
			p.fails(2, []string{"-p", "x", "--image", "none.png"}, "none.png", "no such file")
			p.fails(2, []string{"-p", "x", "--image", "a.png", "--model", "openai/gpt-3.5-turbo"}, "does not see images")
			if n := len(m.Requests()); n != 0 {
				t.Errorf("the model was called %d times", n)
			}
		},
	}
	for name, test := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}
