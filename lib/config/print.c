/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "config/entry.h"
#include "kvx/config.h"

/* Comments are cut so that no line is longer than a file may have. */
static void entry_print(const kvx_entry *entry, FILE *out)
{
    char allowed[120];
    kvx_field_allowed(&entry->field, allowed, sizeof(allowed));
    (void)fprintf(out, "\n# %.150s\n", entry->field.help);
    (void)fprintf(out, "# allowed: %.120s\n", allowed);
    (void)fprintf(out, "# default: %.120s\n", entry->field.default_text);
    (void)fprintf(out, "# set by: %s\n", entry->source);
    (void)fprintf(out, "%s = %s\n", entry->field.key, entry->value);
}

void kvx_config_print(const kvx_config *config, FILE *out)
{
    const kvx_transport_ops *section = NULL;
    (void)fprintf(out, "# A file, then KVX_* in the environment, then the program: "
                       "the last one wins.\n");
    for (size_t i = 0; i < config->count; i++) {
        const kvx_entry *entry = &config->entries[i];
        if (entry->transport != section) {
            section = entry->transport;
            (void)fprintf(out, "\n# %.150s\n[%s]\n", section->help, section->name);
        }
        entry_print(entry, out);
    }
}
