/*
 * Prepares the memory of a booted application for forks. See zygote.h.
 */
#include "zygote.h"

#include "php.h"
#include "zend_alloc.h"
#include "zend_gc.h"

#include "booted.h"

void zygote_prepare_memory(void)
{
	/* Memory that each worker would otherwise find and give back by itself. */
	gc_collect_cycles();
	booted_settle_exception();
	if (is_zend_mm()) {
		zend_mm_gc(zend_mm_get_heap());
	}
}
