package document

import (
	"log/slog"

	"github.com/mcp-bridge/bridge/adapters/remote"
)

// Options say where the texts of an API are.
type Options struct {
	Location string // path or URL of the document; empty if there is none
	Data     []byte // the document itself, if the configuration contains it
	// Headers are sent with requests to the origin of Location.
	Headers  map[string]string
	Overlays []string // paths
	Origins  []string // from which a document at a URL may refer to further texts, besides its own origin
	Folders  []string // from which a document in a file may refer to further texts
	KeepDir  string   // folder with the saved document; empty if nothing is saved
	// Catalog is the path or URL of the catalogue. Empty means that there is none, or that a webhook
	// sends it. CatalogHeaders are sent with requests for that URL only.
	Catalog        string
	CatalogHeaders map[string]string
	HTTP           remote.Config // settings of connections; URL and Headers are ignored
	Log            *slog.Logger
}
