package prompt

import (
	"strings"
	"testing"
)

// The sandbox of another program's settings is ours in our words; what has no counterpart is
// refused, since it would protect.
func TestForeignSandbox(t *testing.T) {
	for given, want := range map[string]string{
		``:                              ``,
		`/a/file.json`:                  `/a/file.json`,
		`{"sandbox":{"mode":"off"}}`:    `{"sandbox":{"mode":"off"}}`,
		`{"sandbox":{"enabled":false}}`: `{"sandbox":{"mode":"off"}}`,
		`{"model":"m","sandbox":{"enabled":true}}`: `{"model":"m","sandbox":{"autoAllow":true,"domains":null,"hidden":null,` +
			`"mode":"required","write":null}}`,
		`{"sandbox":{"enabled":true,"failIfUnavailable":false,"autoAllowBashIfSandboxed":false,"network":{"allowedDomains":["a.b"]},` +
			`"filesystem":{"allowWrite":["/x"],"denyRead":["/y"]}}}`: `{"sandbox":{"autoAllow":false,"domains":["a.b"],"hidden":["/y"],` +
			`"mode":"best","write":["/x"]}}`,
		`{"sandbox":{"enabled":true,"filesystem":{"denyWrite":["/x"]}}}`: "refused: sandbox.filesystem.denyWrite",
		// What would only widen the sandbox is left out.
		`{"sandbox":{"enabled":true,"network":{"allowUnixSockets":["/x"]}}}`: `{"sandbox":{"autoAllow":true,"domains":null,` +
			`"hidden":null,"mode":"required","write":null}}`,
		`{"sandbox":{"enabled":true,"allowUnsandboxedCommands":false}}`: "refused: sandbox.allowUnsandboxedCommands",
	} {
		p := &Prompt{Settings: given}
		err := p.translateSandbox()
		if why, refused := strings.CutPrefix(want, "refused: "); refused {
			if err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%s: %v, want a refusal of %s", given, err, why)
			}
			continue
		}
		if err != nil || p.Settings != want || p.SandboxGiven != strings.Contains(given, `"enabled":true`) {
			t.Errorf("%s: %s, %v\nwant %s", given, p.Settings, err, want)
		}
	}
}
