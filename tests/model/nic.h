/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated transport: reads belong to the network card and run whatever the processes do. */
#ifndef KVX_MODEL_NIC_H
#define KVX_MODEL_NIC_H

#include "world.h"

extern const kvx_transport_ops nic_ops;

void nic_domain_init(kvx_domain *domain, node *n);
/* The process is gone: its own reads end, reads of its memory fail. */
void nic_domain_died(kvx_domain *domain);
/* The owner closes what still sends for a lease. */
void nic_close_sends(node *n, uint64_t remote_epoch, uint64_t nonce);
/* Has it something to report at progress? */
bool nic_has_news(const kvx_domain *domain);

/* What the table needs of the reads. */
void nic_post(kvx_ep *ep, const kvx_read *wanted);
void nic_serve(node *n, nic_read *r);
void nic_report_sends(kvx_domain *domain);
void nic_kill_reads(world *w, const kvx_ep *ep, const node *reader);
void nic_forget_done(kvx_ep *ep);

#endif
