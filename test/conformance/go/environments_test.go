package goclient

import (
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
)

func TestEnvironments(t *testing.T) {
	w := begin(t)
	made := must[*anthropic.BetaEnvironment](w)(w.client.Beta.Environments.New(w.ctx, anthropic.BetaEnvironmentNewParams{
		Name:        "limited",
		Description: anthropic.String("Few hosts."),
		Metadata:    map[string]string{"team": "blue"},
		Config: anthropic.BetaEnvironmentNewParamsConfigUnion{OfCloud: &anthropic.BetaCloudConfigParams{
			Networking: anthropic.BetaCloudConfigParamsNetworkingUnion{OfLimited: &anthropic.BetaLimitedNetworkParams{
				AllowedHosts: []string{"api.example.com", "*.example.org"}, AllowPackageManagers: anthropic.Bool(true),
			}},
			Packages: anthropic.BetaPackagesParams{Pip: []string{"numpy"}},
		}},
	}))
	same(w, "type", string(made.Type), "environment")
	cloud := made.Config.AsCloud()
	limited := cloud.Networking.AsLimited()
	equal(w, "hosts", limited.AllowedHosts, []string{"api.example.com", "*.example.org"})
	same(w, "package managers", limited.AllowPackageManagers, true)
	same(w, "MCP servers", limited.AllowMCPServers, false)
	equal(w, "pip", cloud.Packages.Pip, []string{"numpy"})
	if cloud.Packages.Apt == nil || cloud.Packages.Npm == nil {
		t.Errorf("an empty list of packages is missing: %s", made.RawJSON())
	}

	plain := w.environment()
	same(w, "default kind", plain.Config.Type, "cloud")
	same(w, "default network", plain.Config.AsCloud().Networking.Type, "unrestricted")

	own := must[*anthropic.BetaEnvironment](w)(w.client.Beta.Environments.New(w.ctx, anthropic.BetaEnvironmentNewParams{
		Name: "own", Config: anthropic.BetaEnvironmentNewParamsConfigUnion{OfSelfHosted: &anthropic.BetaSelfHostedConfigParams{}},
	}))
	same(w, "kind", own.Config.Type, "self_hosted")

	got := must[*anthropic.BetaEnvironment](w)(w.client.Beta.Environments.Get(w.ctx, made.ID, anthropic.BetaEnvironmentGetParams{}))
	same(w, "retrieved", got.RawJSON(), made.RawJSON())

	updated := must[*anthropic.BetaEnvironment](w)(w.client.Beta.Environments.Update(w.ctx, made.ID, anthropic.BetaEnvironmentUpdateParams{
		Name: anthropic.String("renamed"), Metadata: map[string]string{"team": "", "stage": "test"},
	}))
	same(w, "name", updated.Name, "renamed")
	same(w, "description kept", updated.Description, "Few hosts.")
	same(w, "metadata", len(updated.Metadata), 1)
	same(w, "stage", updated.Metadata["stage"], "test")
	equal(w, "pip kept", updated.Config.AsCloud().Packages.Pip, []string{"numpy"})
	_, err := w.client.Beta.Environments.Update(w.ctx, made.ID, anthropic.BetaEnvironmentUpdateParams{
		Config: anthropic.BetaEnvironmentUpdateParamsConfigUnion{OfSelfHosted: &anthropic.BetaSelfHostedConfigParams{}},
	})
	refusal := w.refused(err, 400, "invalid_request_error", "")
	same(w, "error_code", refusal.Details.ErrorCode, "invalid_config_type_change")

	archived := must[*anthropic.BetaEnvironment](w)(w.client.Beta.Environments.Archive(w.ctx, made.ID, anthropic.BetaEnvironmentArchiveParams{}))
	if archived.ArchivedAt == "" {
		t.Errorf("archived_at is not set: %s", archived.RawJSON())
	}
	_, err = w.client.Beta.Environments.Update(w.ctx, made.ID, anthropic.BetaEnvironmentUpdateParams{Name: anthropic.String("x")})
	refusal = w.refused(err, 400, "invalid_request_error", "")
	same(w, "error_code", refusal.Details.ErrorCode, "environment_archived")
	_, err = w.client.Beta.Sessions.New(w.ctx, anthropic.BetaSessionNewParams{
		Agent: anthropic.BetaSessionNewParamsAgentUnion{OfString: anthropic.String(w.agent("greet").ID)}, EnvironmentID: made.ID,
	})
	w.refused(err, 400, "invalid_request_error", "archived")

	list := func(params anthropic.BetaEnvironmentListParams) map[string]bool {
		found := map[string]bool{}
		pager := w.client.Beta.Environments.ListAutoPaging(w.ctx, params)
		for environment := range pager.All() {
			found[environment.ID] = true
		}
		if pager.Err() != nil {
			t.Fatal(pager.Err())
		}
		return found
	}
	found := list(anthropic.BetaEnvironmentListParams{Limit: anthropic.Int(2)})
	same(w, "plain is listed", found[plain.ID], true)
	same(w, "archived is listed", found[made.ID], false)
	same(w, "archived is listed on demand", list(anthropic.BetaEnvironmentListParams{IncludeArchived: anthropic.Bool(true)})[made.ID], true)

	for _, id := range []string{made.ID, own.ID} {
		deleted := must[*anthropic.BetaEnvironmentDeleteResponse](w)(w.client.Beta.Environments.Delete(w.ctx, id, anthropic.BetaEnvironmentDeleteParams{}))
		same(w, "deleted", deleted.ID, id)
		same(w, "type", string(deleted.Type), "environment_deleted")
		_, err = w.client.Beta.Environments.Get(w.ctx, id, anthropic.BetaEnvironmentGetParams{})
		w.refused(err, 404, "not_found_error", "")
	}
}
