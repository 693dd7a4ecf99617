// Who looks at the page, and what that one's tags are for. It decides what is offered; what is allowed the API decides.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Whoami } from "./types";

export const MeContext = createContext<Whoami | undefined>(undefined);

export function useMe() {
  const me = useContext(MeContext);
  const tags = me?.tags ?? [];
  return {
    name: me?.name ?? "", known: me !== undefined, admin: tags.includes("administrator"), monitors: tags.includes("administrator") || tags.includes("monitoring"),
    makesPolicies: tags.includes("administrator") || tags.includes("policymaker"),
  };
}
