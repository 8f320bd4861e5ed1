local dead = redis.call('ZRANGE', prefix .. 'workers', '-inf', text(now), 'BYSCORE')
table.sort(dead)
for _, worker in ipairs(dead) do
  remove_worker(worker)
end
if #dead > 0 then
  save()
end
return dead
