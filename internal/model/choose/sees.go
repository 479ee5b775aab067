package choose

import (
	"strings"

	"github.com/drover-dev/drover/internal/model/modelinfo"
)

// Sees reports whether a model sees images, as far as is known. The name may have a provider
// before it.
func Sees(model string) bool {
	return modelinfo.Sees(strings.ToLower(model[strings.LastIndexAny(model, "/:")+1:]))
}
